"""Placement groups: an engine's bundles on the nodes of the cluster that Ray is connected to.

Ray is imported inside the functions, as in ``actor``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.cluster.placement import NodeShape, Parallel, Placement, PlacementError, place
from orchestrator.errors import ChunksmithError

DOMAIN_LABEL: Final = "ray.io/gpu-domain"
"""Ray's label of the NVLink domain of a node."""

_NODE_LABEL: Final = "ray.io/node-id"

_CHOICE_S = 3.0
"""How long chosen nodes may take to give their room. Ray hears of what a node has left about ten times a second."""


class NoRoomError(ChunksmithError):
    """The cluster could hold the engine, and others take the room."""


def node_shapes(*, free: bool = False) -> list[NodeShape]:
    """The live nodes, this process's own first: an engine's log is best where its sweep is.

    Args:
        free: With what is left of them now, by what Ray has heard last, in place of all that they have.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    live = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"] != here)
    has = {node["NodeID"]: node["Resources"] for node in live}
    if free:
        left = ray._private.state.available_resources_per_node()
        has = {node: left.get(node, {}) for node in has}
    return [
        NodeShape(node["NodeID"], has[node["NodeID"]], (node.get("Labels") or {}).get(DOMAIN_LABEL)) for node in live
    ]


def open_group(parallel: Parallel, per_rank: Mapping[str, float], *, spread: bool, timeout_s: float) -> Any:
    """A placement group with one bundle for each rank, ready for actors. It ends with the driver or actor that calls.

    Args:
        per_rank: See ``place``.
        timeout_s: How long others may take to make room.

    Raises:
        PlacementError: The cluster can never hold it.
        NoRoomError: Nobody has made room.
    """
    from ray.util.placement_group import placement_group

    deadline = time.monotonic() + timeout_s
    while True:
        placement = _placement(parallel, per_rank, spread)
        pins = [{_NODE_LABEL: node} for node in placement.nodes or ()]
        bundles = [dict(bundle) for bundle in placement.bundles]
        group = placement_group(bundles, strategy=placement.strategy, bundle_label_selector=pins or None)
        left = max(deadline - time.monotonic(), 0.0)
        try:
            # Another may have been faster on the nodes that were chosen, or one of them is gone: then choose again.
            if group.wait(left if placement.nodes is None else min(left, _CHOICE_S)):
                return group
        except BaseException:
            remove_group(group)
            raise
        remove_group(group)
        if time.monotonic() >= deadline:
            raise NoRoomError(f"others hold the cluster: no room for the engine within {timeout_s:.0f} s")


def remove_group(group: Any) -> None:
    """Give its bundles back. Actors that are left in them are killed."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def nodes_of(group: Any) -> list[str]:
    """Node id of each bundle."""
    from ray.util.placement_group import placement_group_table

    places: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return [places[index] for index in sorted(places)]


def _placement(parallel: Parallel, per_rank: Mapping[str, float], spread: bool) -> Placement:
    placement = place(parallel, node_shapes(), per_rank, spread=spread)
    if placement.nodes is None:
        return placement
    # Nodes that are free now, unless waiting for others keeps more of the ranks together.
    with contextlib.suppress(PlacementError):
        now = place(parallel, node_shapes(free=True), per_rank, spread=spread)
        if now.nodes is not None and now.unit == placement.unit:
            return now
    return placement
