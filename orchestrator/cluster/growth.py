"""What makes an autoscaler add nodes: Ray takes a placement group that waits for a demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from orchestrator.cluster.placement import LEAST_CPU, Parallel


@contextmanager
def demanded(parallel: Parallel, per_rank: Mapping[str, float], *, spread: bool) -> Iterator[None]:
    """While it is entered, the cluster is asked for an engine's nodes. It takes nothing for longer than that.

    Args:
        per_rank, spread: See ``place``.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    asked = {name: need for name, need in per_rank.items() if need > 0} or {"CPU": LEAST_CPU}
    group = placement_group([asked] * parallel.ranks, strategy="SPREAD" if spread else "PACK")
    try:
        yield
    finally:
        remove_placement_group(group)
