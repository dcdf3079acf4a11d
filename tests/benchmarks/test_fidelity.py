from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.fidelity import SPEC, Study, is_same, judged, points_table, pooled, read_study, rungs_table, study_spec
from orchestrator.records import RunFolder
from orchestrator.sweep import load_spec
from tests.sweep.studies import make_spec, new_run, read, run_sweep

A, B, C = ('{"rows": 1}', '{"rows": 2}', '{"rows": 3}')
TRUTH = {A: (0.50, 0.49, 0.51), B: (0.505, 0.49, 0.52), C: (0.60, 0.59, 0.61)}


def study(winner: str, seconds: float) -> Study:
    others = dict.fromkeys((A, B, C), 0.9)
    rungs = {name: [winner, *(key for key in (A, B, C) if key != winner)] for name in ("planning", "short", "full")}
    return Study({**others, winner: 0.5}, {"full": seconds}, {}, rungs)


def test_the_winner_is_the_best_ratio() -> None:
    assert study(B, 1.0).winner == B


def test_points_within_the_margin_are_the_same() -> None:
    assert is_same(A, A, TRUTH)
    assert is_same(A, B, TRUTH)
    assert is_same(B, A, TRUTH)
    assert not is_same(A, C, TRUTH)


def test_bounds_and_shares() -> None:
    ladders, sweeps = [study(A, 2.0), study(C, 3.0)], [study(B, 10.0), study(A, 10.0)]
    figures, (same, seconds) = judged(ladders, sweeps, TRUTH)
    assert (figures["same point"], same.value, seconds.value) == (0.0, 0.5, 0.25)
    assert not same.holds
    assert seconds.holds
    assert (figures["best of all, ladder"], figures["best of all, full"]) == (0.5, 1.0)
    assert figures["loss to the best, ladder"] == pytest.approx(0.2)
    for table in (points_table(ladders, sweeps, TRUTH), rungs_table(ladders)):
        Console(quiet=True).print(table)


def test_what_a_run_has_on_disk(tmp_path: Path) -> None:
    spec = make_spec(trials=3, confirm__points=0, fidelity={"rungs": ["short", "full"], "eta": 2.0})
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    found = read_study(RunFolder.open(run.path), spec.objective.metric)
    rows = {row["point"]: row for row in read(run, "trials") if row["fidelity"] == "full"}
    assert found.ratios == {point: row["ratio"] for point, row in rows.items()}
    assert found.climbed["full"][0] == found.winner
    assert len(found.climbed["short"]) == 6
    assert found.total_s == pytest.approx(sum(row["duration_s"] for row in read(run, "blocks")))
    for point, logs in found.pairs.items():
        assert math.exp(sum(logs) / len(logs)) == pytest.approx(rows[point]["ratio"])
    assert pooled([found, found])[found.winner][0] == pytest.approx(found.ratios[found.winner])


def test_both_studies_of_a_seed_see_the_same_points() -> None:
    ladder, full = study_spec(3, ladder=True), study_spec(3, ladder=False)
    assert ladder.fidelity is not None
    assert full.fidelity is None
    assert ladder.trials == full.trials == load_spec(SPEC).search_space().size == 28
    assert (ladder.seed, full.confirm.points) == (3, 0)
