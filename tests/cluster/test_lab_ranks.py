"""The ranks of a kernel lab as Ray actors over raylets: same tokens, placed as stated, and nothing outlives them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.workloads import Schedule
from tests.cluster.small_lab import config, requests

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

NOTHING = {"workers": 0, "children": 0, "leases": 0, "ports": 0, "groups": 0}
IN_TIME_S = 15.0


def play(scenario: str, folder: Path) -> dict[str, Any]:
    """Run a scenario of the child; return what it tells."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "lab_ranks_child.py"), scenario, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play("two_nodes", tmp_path_factory.mktemp("two_nodes"))


def check_lost(failure: dict[str, Any], message: str) -> None:
    assert (failure["label"], failure["lost"]) == ("rank-lost", True), failure
    assert "\n" not in failure["line"]
    assert re.search(message, failure["line"]), failure["line"]
    assert failure["s"] < IN_TIME_S


def test_four_ranks_on_two_nodes_give_the_tokens_of_one(told: dict[str, Any], tmp_path: Path) -> None:
    engine = KernelLabEngine("alone", str(tmp_path / "lab.log"))
    engine.start(config(1))
    block = engine.run(requests(), Schedule())
    engine.stop()
    assert told["tokens"] == [list(one.output_token_ids) for one in block.requests]


def test_ranks_are_where_the_engine_says(told: dict[str, Any]) -> None:
    """Two on each node, one after the other, and each worker is a child of that node's raylet."""
    assert (told["nodes"], told["order"]) == (2, [0, 0, 2, 2])
    assert told["is_child_of_its_raylet"] == [True] * 4


def test_more_than_the_cluster_has_is_refused_at_once(told: dict[str, Any]) -> None:
    refused = told["refused"]
    assert (refused["label"], refused["lost"], refused["groups"]) == ("resources", False, 0), refused
    line = (
        "an engine of 8 ranks with 1 CPU each does not fit; the cluster has 2 nodes with 2 CPUs (resources in the spec)"
    )
    assert line in refused["line"]
    assert refused["s"] < 1.0


def test_a_killed_rank_is_named_and_nothing_is_left(told: dict[str, Any]) -> None:
    check_lost(told["killed"], rf"^rank-lost: rank 2 of 4 is gone: process {told['pid']} on \S+ ended \(")
    assert told["left"] == NOTHING


@pytest.mark.soak
def test_ranks_and_a_node_killed_in_a_block_and_an_engine_stopped(tmp_path: Path) -> None:
    told = play("in_a_block", tmp_path)
    assert (told["rank_nodes"], told["node_nodes"]) == (2, 2)
    check_lost(told["rank"], r"rank 3 of 4 is gone")
    check_lost(told["node"], r"rank [23] of 4 is gone")
    assert (told["first"]["label"], told["first"]["lost"]) == ("ray-actor-died", True)
    assert told["first"]["s"] < IN_TIME_S
    assert [told[f"{name}_left"] for name in ("rank", "first", "node", "stopped")] == [NOTHING] * 4


@pytest.mark.soak
def test_nothing_outlives_a_killed_driver(tmp_path: Path) -> None:
    told = play("driver_killed", tmp_path)
    assert told == {"groups": 1, "left": NOTHING}


@pytest.mark.soak
def test_one_node_where_it_holds_all_ranks_and_every_node_where_they_spread(tmp_path: Path) -> None:
    told = play("one_node_or_all", tmp_path)
    packed, spread = told["packed"], told["spread"]
    assert (packed["order"], spread["order"]) == ([0, 0, 0, 0], [0, 0, 2, 2])
    assert packed["tokens"] == spread["tokens"]
    assert packed["left"] == spread["left"] == NOTHING
    # What stays on one machine needs no network.
    assert packed["linked"] == ["127.0.0.1"]
    assert len(spread["linked"]) == 1
    assert spread["linked"] != packed["linked"]
