"""A cluster that grows is asked for the nodes of an engine, and waited for; one that does not refuses at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster import NodeWatch, groups
from orchestrator.cluster.groups import wait_for_nodes
from orchestrator.cluster.placement import NodeShape, Parallel, PlacementError

ROOT = Path(__file__).parents[2]
RANK = {"CPU": 1.0}
ONE_NODE = [NodeShape("n0", {"CPU": 2.0})]


def demands(monkeypatch: pytest.MonkeyPatch, looks: list[list[NodeShape]], growth_s: float) -> list[str]:
    """Wait for one engine on nodes that are live at each look; what was asked of the cluster meanwhile."""
    told: list[str] = []

    @contextmanager
    def noted(*_args: object, **_more: object) -> Iterator[None]:
        told.append("asked")
        try:
            yield
        finally:
            told.append("withdrawn")

    monkeypatch.setattr(groups, "demanded", noted)
    monkeypatch.setattr(groups, "node_shapes", lambda: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(groups, "_LOOK_S", 0.01)
    try:
        wait_for_nodes(Parallel(), RANK, NodeWatch(), spread=False, timeout_s=60.0, growth_s=growth_s)
    except PlacementError:
        told.append("refused")
    return told


def test_a_cluster_is_asked_once_and_only_where_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demands(monkeypatch, [[], [], [], ONE_NODE], 60.0) == ["asked", "withdrawn"]
    assert demands(monkeypatch, [ONE_NODE], 60.0) == []
    assert demands(monkeypatch, [[], ONE_NODE], 0.0) == ["refused"]


def test_nodes_that_do_not_come_in_time_are_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demands(monkeypatch, [[]], 0.05) == ["asked", "withdrawn", "refused"]


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_an_autoscaler_adds_the_nodes_of_an_engine(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "growth_child.py"), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr + (tmp_path / "ray.log").read_text()
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert told["refused"]["label"] == "resources"
    assert told["refused"]["line"].startswith("an engine with 4 CPUs does not fit; the cluster has 1 node with 1 CPU")
    assert told["engines"] == 1
    # The demand was withdrawn once the node was there.
    assert told["groups"] == ["REMOVED"]
    assert (told["never"]["label"], told["never"]["lost"]) == ("resources", False)
    assert 1.0 <= told["never"]["s"] < 10.0
    assert told["left"] == []
