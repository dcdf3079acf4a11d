"""Engines in actors that hang or die: noticed in time, recorded with their class, and nothing is left of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster.watchdog import QUIET_S

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
NOTHING = {"processes": 0, "ports": 0, "shared files": 0, "leases": 0, "scratch": 0}
NOTICED_IN_S = 15.0


def play(scenario: str, folder: Path) -> dict[str, Any]:
    """Run a scenario of the child; return what it tells."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "supervision_child.py"), scenario, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play("supervised", tmp_path_factory.mktemp("logs"))


def test_a_stopped_actor_is_noticed_and_called_a_hang(told: dict[str, Any]) -> None:
    stopped = told["stopped"]
    assert (stopped["label"], stopped["lost"]) == ("hang", True)
    assert re.fullmatch(r"process \d+ \(.*\) was stopped for 5 s \(state T\)", stopped["detail"])
    assert stopped["s"] <= NOTICED_IN_S
    assert stopped["left"] == NOTHING


def test_a_killed_actor_leaves_nothing(told: dict[str, Any]) -> None:
    killed = told["killed"]
    assert (killed["label"], killed["lost"]) == ("ray-actor-died", True)
    assert killed["s"] <= NOTICED_IN_S
    assert killed["left"] == NOTHING


def test_a_node_that_lost_two_engines_is_left_alone_with_a_word(told: dict[str, Any]) -> None:
    assert told["other node"] != told["node"]
    (line,) = told["lines"]
    assert line.startswith(
        f"node {told['node'][:12]} is put aside for 30 minutes: it lost 2 engines in a row, the last"
    )


@pytest.mark.soak
def test_a_block_that_waits_for_ever_is_noticed(tmp_path: Path) -> None:
    told = play("waiting", tmp_path)
    assert told["label"] == "hang"
    assert told["detail"].endswith("1 requests in flight, and its processes are idle")
    assert told["s"] <= NOTICED_IN_S
    assert told["left"] == NOTHING


@pytest.mark.soak
def test_a_block_that_computes_for_ever_is_noticed(tmp_path: Path) -> None:
    told = play("spinning", tmp_path)
    assert told["label"] == "hang"
    assert re.search(r"no step and no token for \d+ s, \d+ requests in flight; the longest before was ", told["detail"])
    # Where others take the processor, it counts for less than the clock.
    assert min(told["s"], told["cpu_s"]) <= NOTICED_IN_S
    assert told["left"] == NOTHING


@pytest.mark.soak
def test_a_long_step_is_no_hang(tmp_path: Path) -> None:
    told = play("long_step", tmp_path)
    assert told["s"] > 2 * QUIET_S
    assert (told["steps"], told["errors"]) == (1, [None])
