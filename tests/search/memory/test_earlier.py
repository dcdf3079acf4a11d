from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search.memory import EarlierRun, shared_knobs
from orchestrator.search.memory.earlier import normal_scores, standing
from orchestrator.search.portfolio import Value
from orchestrator.search.portfolio.features import Points
from tests.search.memory.conftest import alike, earlier
from tests.search.portfolio.conftest import GRID, POINTS


def rank(values: Any) -> list[int]:
    return [int(one) for one in np.argsort(values, kind="stable")]


def test_a_run_that_measured_every_point_ranks_them_as_it_measured() -> None:
    found = standing(POINTS, earlier(alike))
    losses = np.array([alike(point) for point in GRID])
    assert np.corrcoef(found, normal_scores(losses))[0, 1] > 0.999
    assert found.mean() == pytest.approx(0.0)
    assert found.std() == pytest.approx(1.0)


def test_a_tenth_of_the_points_ranks_the_others_too() -> None:
    found = standing(POINTS, earlier(alike, every=10))
    losses = np.array([alike(point) for point in GRID])
    assert np.corrcoef(found, normal_scores(losses))[0, 1] > 0.7


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=12, unique=True))
def test_only_the_order_of_losses_counts(losses: list[int]) -> None:
    numbers = np.array(losses, dtype=float)
    assert normal_scores(numbers).tolist() == normal_scores(np.exp(numbers / 500.0)).tolist()
    assert rank(normal_scores(numbers)) == rank(numbers)


def test_a_value_that_was_not_measured_lies_between_its_neighbours() -> None:
    run = EarlierRun("runs/a", [{"rows": rows} for rows in (128, 512, 2048)], np.array([3.0, 2.0, 1.0]))
    found = standing(Points.of([{"rows": rows} for rows in (128, 256, 512, 1024, 2048)]), run)
    assert rank(-found) == [0, 1, 2, 3, 4]


def test_knobs_that_only_one_side_has_are_left_out() -> None:
    points: list[dict[str, Value]] = [{"rows": rows, "own": own} for rows in (128, 256, 512) for own in ("x", "y")]
    measured: list[dict[str, Value]] = [{"rows": rows, "gone": gone} for rows in (128, 256, 512) for gone in (0, 1)]
    run = EarlierRun("runs/a", measured, np.array([6.0, 5.0, 1.0, 4.0, 2.0, 3.0]))
    encoded = Points.of(points)
    assert shared_knobs(encoded, run) == ["rows"]
    found = standing(encoded, run)
    # Averaged over ``gone``.
    assert found[0] == found[1] > found[4] == found[5] > found[2] == found[3]


def test_what_the_run_did_not_vary_is_not_shared() -> None:
    run = EarlierRun("runs/a", [{"rows": 128, "seqs": 16}, {"rows": 128, "seqs": 32}], np.array([1.0, 2.0]))
    assert shared_knobs(POINTS, run) == ["seqs"]
    with pytest.raises(ValueError, match="runs/b: shares no knob with the space"):
        standing(POINTS, EarlierRun("runs/b", [{"blocks": 1}, {"blocks": 2}], np.array([1.0, 2.0])))


def test_a_run_has_a_number_for_each_point() -> None:
    with pytest.raises(ValueError, match="runs/a: 2 points and 1 losses"):
        EarlierRun("runs/a", GRID[:2], np.array([1.0]))
    with pytest.raises(ValueError, match="a loss is not finite"):
        EarlierRun("runs/a", GRID[:1], np.array([np.nan]))
