from __future__ import annotations

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from benchmarks._landscapes import landscape
from benchmarks._t4 import TuningTable
from benchmarks._twins import MISLEADING, Pair, misleading, twins
from benchmarks.warm_start import MOST, Outcome, bounds_of, pooled, remembered, search, until

TABLE = TuningTable("small", [{"a": a, "b": b} for a in (1, 2, 4) for b in ("x", "y")], np.array([4.0, 2, 9, 1, 8, 7]))


def test_twins_are_the_made_up_table_and_one_that_is_near_it() -> None:
    pair = twins("additive", 10, 0.25)
    points, times = landscape("additive", 10)
    assert (pair.target.points, pair.target.times.tolist()) == (points, times.tolist())
    same = twins("additive", 10, 0.0)
    assert np.allclose(same.source.times, times)
    assert 0.3 < pair.correlation < 1.0 == pytest.approx(same.correlation)
    assert pair.is_related


def test_sources_mislead_as_they_are_called() -> None:
    target = twins("additive", 10, 0.25).target
    found = {name: misleading(name, target, 10) for name in MISLEADING}
    assert found["inverted"].correlation == pytest.approx(-1.0)
    assert abs(found["unrelated"].correlation) < 0.4
    decoy = found["decoy"]
    best = target.times <= np.quantile(target.times, 0.05)
    assert decoy.correlation > found["unrelated"].correlation
    assert not any(pair.is_related for pair in found.values())
    assert np.median(decoy.source.times[best]) > np.quantile(decoy.source.times, 0.3)


def test_a_search_ends_at_its_goal_and_counts_what_it_took() -> None:
    assert until([2, 1, 3], TABLE, goal=0.0) == 3
    assert until([2, 1, 3], TABLE, goal=1.0) == 2
    assert until([2, 1], TABLE, goal=0.0) == MOST


def test_what_failed_is_not_remembered() -> None:
    failing = TuningTable("failing", TABLE.points, np.where(TABLE.times > 8, np.inf, TABLE.times))
    run = remembered(failing, [2, 3, 0])
    assert list(run.points) == [TABLE.points[3], TABLE.points[0]]
    assert run.losses.tolist() == pytest.approx(np.log([1.0, 4.0]))


def outcome(correlation: float, cold: float, warm: float) -> Outcome:
    times = TABLE.times if correlation > 0 else 1.0 / TABLE.times
    pair = Pair("twin", TABLE, TuningTable("source", TABLE.points, times))
    warm_by = {variant: np.full(4, warm) for variant in ("study", "table")}
    return Outcome(pair, 0.05, np.full(4, cold), warm_by)


def test_bounds_are_on_what_helps_and_on_what_misleads() -> None:
    outcomes = [
        outcome(1.0, 60.0, 20.0),
        outcome(1.0, 60.0, 30.0),
        outcome(-1.0, 50.0, 54.0),
        outcome(-1.0, 50.0, 60.0),
    ]
    assert pooled(outcomes[:2], "study")[0] == pytest.approx((1 / 6) ** 0.5)
    helps, misleads, worst = list(bounds_of(outcomes))[:3]
    found = [helps.value, misleads.value, worst.value]
    assert found == pytest.approx([(1 / 6) ** 0.5, (1.08 * 1.2) ** 0.5, 1.2])
    assert [helps.holds, misleads.holds, worst.holds] == [True, False, False]


def test_a_row_is_tried_for_each_proposal() -> None:
    tried = search(TABLE, RandomSampler(seed=0), evaluations=5, goal=-1.0)
    assert len(tried) == 5
    assert set(tried) <= set(range(6))
