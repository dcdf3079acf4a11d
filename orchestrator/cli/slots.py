"""How many trials a sweep measures at a time: what was asked for, and what the cluster has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cluster import ClusterRoom
    from orchestrator.sweep import SweepSpec


def room_for(
    spec: SweepSpec, engines: int, *, parallel: int | None, is_local: bool, say: Callable[[str], None]
) -> ClusterRoom | None:
    """What a sweep asks for its slots; None where there is one, now and later. Ray is connected.

    Args:
        engines: Of one slot.
        parallel: Slots that are wanted; None for as many as there is room for.
        is_local: Whether the cluster is this machine alone, and stays so.
    """
    if parallel == 1 or (is_local and parallel is None and spec.resources.gpus == 0):
        return None
    from orchestrator.cluster import ClusterRoom, ranks_of

    ranks = ranks_of(spec.engine.kind, spec.engine_config())
    per_rank = {"CPU": spec.resources.cpus / ranks.ranks, "GPU": spec.resources.gpus / ranks.ranks}
    room = ClusterRoom(engines, ranks, per_rank, most=parallel)
    here = max(room(0), 1)
    if parallel is not None and here < parallel:
        later = "" if is_local else "; more begin when nodes join"
        say(f"the cluster has room for {here} of {parallel} trials at a time{later}")
    return None if is_local and here == 1 else room
