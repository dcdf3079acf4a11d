"""What happened at a point."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.analysis.why import why
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import write_rows
from tests.analysis.runs import Run
from tests.records.rows import plain_row


def test_counters_stand_beside_the_baselines(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.trial(1, kv_blocks=99)
    run.confirm(
        1, 0.5, candidate={"context_chunks": 8, "area_plans": 0}, baseline={"context_chunks": 2, "area_plans": 0}
    )
    found = why(run.path, 1)
    assert (found.trial, found.point, found.outcome, found.kv_blocks) == (1, Run.point(1), "complete", 99)
    counters = {counter.name: counter for counter in found.counters}
    assert (counters["context_chunks"].candidate, counters["context_chunks"].baseline) == (8.0, 2.0)
    assert counters["context_chunks"].unit == "chunks"
    # Nothing to tell: zero on both sides, or never counted.
    assert "area_plans" not in counters
    assert "lab_chunks" not in counters


def test_a_failed_trial_says_why(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.trial(0, outcome="failed", failure="oom", failure_detail="no memory", ratio=None, kv_blocks=None)
    found = why(run.path, 0)
    assert (found.failure, found.ratio, found.kv_blocks, found.counters) == ("oom: no memory", None, None, ())


def test_an_unknown_trial_is_the_users_mistake(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with pytest.raises(UserError, match="no trial 3; recorded are none yet"):
        why(run.path, 3)
    run.trial(0)
    with pytest.raises(UserError, match="no trial 3; recorded are 0 to 0"):
        why(run.path, 3)


def test_a_trial_that_stands_twice_is_no_answer(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write_rows(run.path, "trials", "twice", [plain_row("trials", trial=0), plain_row("trials", trial=0)])
    with pytest.raises(ChunksmithError, match="holds trial 0 twice"):
        why(run.path, 0)
