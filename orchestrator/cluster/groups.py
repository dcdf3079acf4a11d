"""Placement groups: an engine's bundles on the nodes of the cluster that Ray is connected to.

Ray is imported inside the functions, as in ``actor``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.cluster.growth import demanded
from orchestrator.cluster.nodes import NODE_LABEL, NodeWatch, elsewhere
from orchestrator.cluster.placement import NodeShape, Parallel, Placement, PlacementError, place
from orchestrator.errors import ChunksmithError

DOMAIN_LABEL: Final = "ray.io/gpu-domain"
"""Ray's label of the NVLink domain of a node."""

_CHOICE_S = 3.0
"""How long chosen nodes may take to give their room. Ray hears of what a node has left about ten times a second."""

_LOOK_S = 0.5
"""How often is looked for nodes that are awaited."""


class NoRoomError(ChunksmithError):
    """The cluster could hold the engine, and others take the room."""


def node_shapes(*, free: bool = False, without: Collection[str] = ()) -> list[NodeShape]:
    """The live nodes, this process's own first: an engine's log is best where its sweep is.

    Args:
        free: With what is left of them now, by what Ray has heard last, in place of all that they have.
        without: Ids of nodes that do not count.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    live = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in without]
    live.sort(key=lambda node: node["NodeID"] != here)
    has = {node["NodeID"]: node["Resources"] for node in live}
    if free:
        left = ray._private.state.available_resources_per_node()
        has = {node: left.get(node, {}) for node in has}
    return [
        NodeShape(node["NodeID"], has[node["NodeID"]], (node.get("Labels") or {}).get(DOMAIN_LABEL)) for node in live
    ]


def avoidable(
    aside: Collection[str], parallel: Parallel, per_rank: Mapping[str, float], *, spread: bool = False
) -> Collection[str]:
    """The nodes that are put aside, if an engine has room on the others now; else none, and it may go anywhere."""
    if aside:
        with contextlib.suppress(PlacementError):
            place(parallel, node_shapes(free=True, without=aside), per_rank, spread=spread)
            return aside
    return ()


def wait_for_nodes(
    parallel: Parallel,
    per_rank: Mapping[str, float],
    nodes: NodeWatch,
    *,
    spread: bool,
    timeout_s: float,
    growth_s: float = 0.0,
) -> None:
    """Return when the live nodes can hold an engine, whatever others use of them.

    Where they could before, in this sweep, they are waited for: a cluster loses nodes for a moment. Where the cluster
    grows, it is asked for new ones.

    Args:
        nodes: Remembers what nodes there have been.
        timeout_s: How long nodes that were there may take to come back.
        growth_s: How long new ones may take; 0 where none are to be asked for.

    Raises:
        PlacementError: They cannot, and never could; or they could, and have not come back; or no new ones came.
    """
    begin, is_asked = time.monotonic(), False
    with contextlib.ExitStack() as demand:
        while True:
            live = node_shapes()
            nodes.saw(live)
            try:
                place(parallel, live, per_rank, spread=spread)
            except PlacementError:
                were_there = nodes.could_hold(parallel, per_rank, spread=spread)
                if time.monotonic() - begin >= max(growth_s, timeout_s if were_there else 0.0):
                    raise
                if growth_s > 0 and not is_asked:
                    demand.enter_context(demanded(parallel, per_rank, spread=spread))
                    is_asked = True
                time.sleep(_LOOK_S)
            else:
                return


def open_group(
    parallel: Parallel, per_rank: Mapping[str, float], *, spread: bool, timeout_s: float, aside: Collection[str] = ()
) -> Any:
    """A placement group with one bundle for each rank, ready for actors. It ends with the driver or actor that calls.

    Args:
        per_rank: See ``place``.
        timeout_s: How long others may take to make room.
        aside: Nodes that are taken only where the others have no room now.

    Raises:
        PlacementError: The cluster can never hold it.
        NoRoomError: Nobody has made room.
    """
    from ray.util.placement_group import placement_group

    deadline = time.monotonic() + timeout_s
    while True:
        avoided = avoidable(aside, parallel, per_rank, spread=spread)
        placement = _placement(parallel, per_rank, spread, avoided)
        bundles = [dict(bundle) for bundle in placement.bundles]
        pins = [{NODE_LABEL: node} for node in placement.nodes or ()]
        if placement.nodes is None and avoided:
            pins = [elsewhere(avoided) for _ in bundles]
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


def is_waiting(actor: Any) -> bool:
    """Whether an actor has no process yet, because no node has room for it."""
    import ray
    from ray.core.generated import gcs_pb2

    # Ray's public state API needs its dashboard; its table of actors in Python leaves the worker out.
    table = ray._private.state.state._connect_and_get_accessor()
    found = gcs_pb2.ActorTableData.FromString(table.get_actor_info(actor._actor_id) or b"")
    return found.state == gcs_pb2.ActorTableData.PENDING_CREATION and not found.address.worker_id


def nodes_of(group: Any) -> list[str]:
    """Node id of each bundle."""
    from ray.util.placement_group import placement_group_table

    places: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return [places[index] for index in sorted(places)]


def _placement(parallel: Parallel, per_rank: Mapping[str, float], spread: bool, without: Collection[str]) -> Placement:
    placement = place(parallel, node_shapes(without=without), per_rank, spread=spread)
    if placement.nodes is None:
        return placement
    # Nodes that are free now, unless waiting for others keeps more of the ranks together.
    with contextlib.suppress(PlacementError):
        now = place(parallel, node_shapes(free=True, without=without), per_rank, spread=spread)
        if now.nodes is not None and now.unit == placement.unit:
            return now
    return placement
