"""Engines and sweeps that share a cluster of raylets, with fake GPUs: placed as stated, and no trial is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster.reaper import lease_folder
from orchestrator.records import RunFolder, read_arrow
from orchestrator.sweep import load_spec
from tests.sweep.studies import require_whole

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


def play(scenario: str, folder: Path) -> dict[str, Any]:
    """Run a scenario of the child; return what it tells."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "sharing_child.py"), scenario, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


def test_engines_of_one_node_and_of_four(tmp_path: Path) -> None:
    told = play("gpu_nodes", tmp_path)
    (node,) = set(told["one"])
    assert told["gpus"] == [[node, [gpu]] for gpu in [one[1][0] for one in told["gpus"]]]
    assert sorted(gpus[0] for _, gpus in told["gpus"]) == list(range(8))
    # Runs of eight ranks, each a whole group of decode context parallelism, on four other nodes.
    for placed in (told["four"], told["after"]):
        runs = [(name, len(list(ranks))) for name, ranks in groupby(placed)]
        assert [count for _, count in runs] == [8, 8, 8, 8]
        assert len({name for name, _ in runs} - {node}) == 4
    assert told["full"]["line"] == "others hold the cluster: no room for the engine within 1 s"
    assert told["too_large"]["line"].startswith("an engine of 48 ranks with 1 GPU and 1 CPU each does not fit")
    assert told["too_large"]["s"] < 1.0


def test_two_sweeps_on_a_cluster_that_gains_and_loses_nodes(tmp_path: Path) -> None:
    told = play("two_sweeps", tmp_path)
    assert told["codes"] == [0, 0], "\n".join(told["outputs"])
    assert "attempt 1 of 3" in told["outputs"][0]
    for name in ("first", "second"):
        run = RunFolder(tmp_path / name)
        require_whole(run, load_spec(run.spec))
        assert {row["outcome"] for row in read_arrow(run.path, "trials").to_pylist()} == {"complete"}
        engines = [log.stem for log in run.logs.glob("engine-*.log")]
        assert not [lease for engine in engines for lease in lease_folder().glob(f"{engine}*")]
