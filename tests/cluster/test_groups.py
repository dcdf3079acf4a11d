"""Waiting for nodes that a cluster has lost for a moment. Groups on real raylets are tested in test_sharing.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cluster import NodeWatch, RayEngine, Timeouts, groups
from orchestrator.cluster.groups import wait_for_nodes
from orchestrator.cluster.placement import NodeShape, Parallel, PlacementError
from orchestrator.engines import EngineError

RANK = {"CPU": 1.0, "GPU": 0.0}
ONE_NODE = [NodeShape("n0", {"CPU": 2.0})]

Live = Callable[..., None]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """Says which nodes are live at each look; the last of them from then on."""
    looks: list[list[NodeShape]] = []

    def set_looks(*seen: list[NodeShape]) -> None:
        looks[:] = seen

    monkeypatch.setattr(groups, "node_shapes", lambda **_: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(groups, "_LOOK_S", 0.01)
    return set_looks


def wait(nodes: NodeWatch, timeout_s: float) -> None:
    wait_for_nodes(Parallel(), RANK, nodes, spread=False, timeout_s=timeout_s)


def test_what_never_fitted_is_refused_at_once(live: Live) -> None:
    live([], ONE_NODE)
    with pytest.raises(PlacementError, match="does not fit; the cluster has no nodes"):
        wait(NodeWatch(), 60.0)


def test_nodes_that_were_there_are_waited_for(live: Live) -> None:
    nodes = NodeWatch()
    live(ONE_NODE, [], [], ONE_NODE)
    wait(nodes, 60.0)
    wait(nodes, 60.0)
    live([])
    with pytest.raises(PlacementError):
        wait(nodes, 0.03)


@pytest.mark.parametrize(
    ("cpus", "label", "lost", "says"),
    [
        (2.0, "no-room", True, "nodes are gone that were there before: an engine with 2 CPUs does not fit"),
        (3.0, "resources", False, "an engine with 3 CPUs does not fit; the cluster has no nodes"),
    ],
)
def test_an_engine_whose_nodes_are_gone_has_no_room(
    live: Live, tmp_path: Path, cpus: float, label: str, lost: bool, says: str
) -> None:
    nodes = NodeWatch()
    nodes.saw(ONE_NODE)
    live([])
    engine = RayEngine(tmp_path, cpus=cpus, nodes=nodes, timeouts=Timeouts(place_s=0.03))
    with pytest.raises(EngineError) as caught:
        engine._placed(Parallel())
    assert (caught.value.label, caught.value.lost) == (label, lost)
    assert caught.value.detail.startswith(says)
