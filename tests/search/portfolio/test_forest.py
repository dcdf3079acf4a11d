from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.portfolio.features import Points
from orchestrator.search.portfolio.forest import Forest, evaluate, grow
from tests.search.portfolio.conftest import GRID, POINTS, seconds

ALL = np.arange(POINTS.size, dtype=np.int32)
TRUTH = np.log([seconds(point) for point in GRID])


def test_distinct_rows_are_told_apart() -> None:
    rows = np.random.default_rng(0).choice(POINTS.size, 50, replace=False).astype(np.int32)
    mean, sd = Forest(POINTS).predict(rows, TRUTH[rows], rows, 7)
    assert mean == pytest.approx(TRUTH[rows])
    assert sd == pytest.approx(np.zeros(50), abs=1e-6)


def test_what_was_not_measured_is_foretold() -> None:
    rows = np.random.default_rng(0).choice(POINTS.size, 80, replace=False).astype(np.int32)
    rest = np.setdiff1d(ALL, rows)
    mean, sd = Forest(POINTS).predict(rows, TRUTH[rows], rest, 7)
    assert np.corrcoef(mean, TRUTH[rest])[0, 1] > 0.85
    assert (sd > 0).mean() > 0.9


def test_the_seed_decides_and_the_choice_of_candidates_does_not() -> None:
    rows, forest = ALL[:60], Forest(POINTS)
    whole, some = forest.predict(rows, TRUTH[rows], ALL, 3), forest.predict(rows, TRUTH[rows], ALL[60:80], 3)
    assert (whole[0][60:80] == some[0]).all()
    assert (whole[0] != forest.predict(rows, TRUTH[rows], ALL, 4)[0]).any()


def test_a_leaf_holds_the_mean_of_rows_that_cannot_be_parted() -> None:
    x = np.zeros((1, 4), dtype=np.float32)
    trees = grow(x, np.array([1.0, 2.0, 3.0, 6.0]), 5, 1, 1, 0, 0)
    mean, sd = evaluate(np.zeros((3, 1), dtype=np.float32), *trees)
    assert mean == pytest.approx([3.0, 3.0, 3.0])
    assert sd == pytest.approx([0.0, 0.0, 0.0])


def test_a_product_of_two_knobs_is_cut_at_once() -> None:
    grid = Points.of([{"a": 2**i, "b": 2**j} for i in range(12) for j in range(12)])
    product = grid.codes.sum(axis=1)
    y = (product > 11).astype(float)
    rows = np.random.default_rng(2).choice(grid.size, 40, replace=False).astype(np.int32)
    mean, _ = Forest(grid).predict(rows, y[rows], np.arange(grid.size, dtype=np.int32), 1)
    assert ((mean > 0.5) == (y > 0.5)).mean() > 0.93


def test_a_single_point_and_a_constant_space() -> None:
    mean, _ = Forest(POINTS).predict(ALL[:1], np.array([0.5]), ALL, 0)
    assert (mean == 0.5).all()
    alone = Forest(Points.of([{"a": 1}]))
    assert alone.predict(np.zeros(1, dtype=np.int32), np.array([0.5]), np.zeros(1, dtype=np.int32), 0)[0] == [0.5]
