"""The made-up run of the benchmark is one that the analysis takes, and its commands are measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks._big_runs import make_runs
from benchmarks.analysis import timed
from orchestrator.analysis import best
from orchestrator.analysis.points import read_points
from orchestrator.analysis.sensitivity import sensitivity
from orchestrator.records import RunFolder, read_arrow
from orchestrator.records.checking import check


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_runs(tmp_path_factory.mktemp("big"), 600, lambda line: None)


def test_it_has_a_winner_a_front_and_effects(runs: tuple[Path, Path]) -> None:
    one, two = runs
    assert read_arrow(one, "requests").num_rows == 6_000 + 5 * 16
    assert best(one).decision == "winner"
    answer = best(two)
    assert answer.decision == "pareto set"
    assert sum(finalist.obstacle is None for finalist in answer.finalists) > 1
    assert len(sensitivity(read_points(one))) > 8
    assert not any(table.faults for run in runs for table in check(RunFolder(run)))


def test_seconds_and_memory_of_a_process() -> None:
    seconds, cpu, memory = timed([sys.executable, "-c", "x = b'1' * 200_000_000; sum(range(3_000_000))"])
    assert seconds > 0.0
    assert cpu > 0.01
    assert memory > 0.2
    with pytest.raises(SystemExit, match="exit code 3"):
        timed([sys.executable, "-c", "raise SystemExit(3)"])
