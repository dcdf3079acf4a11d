from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.portfolio.failures import FailureModel, explain
from orchestrator.search.portfolio.features import Points
from tests.search.portfolio.conftest import GRID, POINTS

ALL = np.arange(POINTS.size, dtype=np.int32)
BIG_ON_A = np.array([float(point["rows"] >= 2048 and point["backend"] == "a") for point in GRID])  # type: ignore[operator]


def tried(count: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.random.default_rng(seed).choice(POINTS.size, count, replace=False).astype(np.int32)


def test_nothing_failed_nothing_will() -> None:
    assert not FailureModel(POINTS).probability(tried(20), np.zeros(20), ALL).any()


def test_a_rule_on_two_knobs_is_learned_from_forty_trials() -> None:
    right = []
    for seed in range(8):
        rows = tried(40, seed)
        found = FailureModel(POINTS).probability(rows, BIG_ON_A[rows], ALL)
        right.append(((found > 0.5) == (BIG_ON_A > 0.5))[np.setdiff1d(ALL, rows)].mean())
    # Without a model one would be right in five of six.
    assert np.mean(right) > 0.92


def test_success_in_a_cell_outweighs_failures_next_to_it() -> None:
    points = Points.of([{"rows": 2**power, "seed": seed} for power in range(8) for seed in range(8)])
    rows = np.flatnonzero(points.codes[:, 1] < 4).astype(np.int32)
    failed = (points.codes[rows, 0] >= 4).astype(float)
    found = FailureModel(points).probability(rows, failed, np.arange(points.size, dtype=np.int32))
    below, above = (rows[points.codes[rows, 0] == power] for power in (3, 4))
    assert found[below].max() < 0.2
    assert found[above].min() > 0.8


def test_a_rule_on_one_knob_too() -> None:
    rule, rows = np.array([float(point["backend"] == "c") for point in GRID]), tried(25)
    found = FailureModel(POINTS).probability(rows, rule[rows], ALL)
    assert found[rule > 0].min() > 0.5 > found[rule == 0].max()


def test_the_next_level_of_an_ordered_knob_is_suspect() -> None:
    points = Points.of([{"rows": 2**power, "seed": seed} for power in range(12) for seed in ("x", "y")])
    rows = np.array([row for row in range(points.size) if points.codes[row, 0] not in (4, 9)], dtype=np.int32)
    failed = (points.codes[rows, 0] >= 7).astype(float)
    found = FailureModel(points).probability(rows, failed, np.arange(points.size, dtype=np.int32))
    by_power = {power: found[points.codes[:, 0] == power].mean() for power in (4, 9)}
    assert by_power[4] < 0.25
    assert by_power[9] > 0.75


def test_an_explanation_is_weighed_by_what_it_foretells_of_each_trial_from_the_others() -> None:
    cells = np.array([[0, 0], [0, 0], [0, 0], [0, 1], [1, 1], [1, 1]], dtype=np.int32)
    failed, rate, strength = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0]), 0.5, 0.4
    score, tables = explain(
        cells,
        failed,
        np.array([[0, 1]], dtype=np.int32),
        np.array([2, 2], dtype=np.int32),
        np.array([False, False]),
        0.0,
        rate,
        strength,
    )
    expected = 0.0
    for i in range(6):
        same = [j for j in range(6) if j != i and (cells[j] == cells[i]).all()]
        chance = (failed[same].sum() + strength * rate) / (len(same) + strength)
        expected += float(np.log(chance if failed[i] else 1.0 - chance))
    assert score[0] == pytest.approx(expected)
    assert tables[0, :2, :2] == pytest.approx(np.array([[2.2 / 3.4, 0.2 / 1.4], [0.5, 1.2 / 2.4]]))


def test_everything_failed_and_a_list_without_a_choice() -> None:
    assert (FailureModel(POINTS).probability(tried(9), np.ones(9), ALL) > 0.8).all()
    one = Points.of([{"a": 1}])
    row = np.zeros(1, dtype=np.int32)
    assert FailureModel(one).probability(row, np.ones(1), row) == pytest.approx([0.75])


def test_a_quantity_is_binned() -> None:
    points = Points.of([{"share": step / 500, "on": on} for step in range(500) for on in (False, True)])
    rows = np.random.default_rng(0).choice(points.size, 60, replace=False).astype(np.int32)
    rule = (points.coordinates[:, 0] > 0.6) & (points.codes[:, 1] == 1)
    found = FailureModel(points).probability(rows, rule[rows].astype(float), np.arange(points.size, dtype=np.int32))
    assert ((found > 0.5) == rule).mean() > 0.9
