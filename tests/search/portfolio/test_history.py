from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.portfolio.targets import Shape, target
from tests.search.portfolio.conftest import history

NAN = float("nan")


def test_positive_values_are_taken_as_logarithms_and_failures_left_out() -> None:
    found = history([4, 5, 6], [2.0, NAN, 8.0], noise=np.array([0.1, 0.0, 0.3]))
    assert found.rows.tolist() == [4, 6]
    assert found.losses[:, 0] == pytest.approx(np.log([2.0, 8.0]))
    assert found.noise_of(0).tolist() == [0.1, 0.3]


def test_a_value_that_is_not_positive_ends_the_log_scale() -> None:
    found = history([4, 5], [2.0, -8.0], noise=np.array([0.1, 0.3]), minimise=np.array([False]))
    assert found.losses[:, 0].tolist() == [-2.0, 8.0]
    assert found.noise_of(0).tolist() == [0.0, 0.0]


def test_the_front_of_two_objectives() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [2.0, 9.0], [3.0, 9.5], [0.5, 1.0]])
    found = history([0, 1, 2, 3, 4], [0.0] * 5, values=values, minimise=np.array([True, False]))
    assert found.front.tolist() == [True, False, True, True, True]
    assert history([0, 1, 2], [3.0, 1.0, 2.0]).front.tolist() == [False, True, False]


def test_a_bounded_target_is_the_root_of_the_ratio() -> None:
    values = np.array([1.0, 2.0, 4.0, 1e6])
    found = target(np.log(values), np.zeros(4), is_log=True, shape="bounded")
    expected = -np.sqrt(values.min() / values)
    assert found.y == pytest.approx((expected - expected.mean()) / expected.std())


@pytest.mark.parametrize("shape", ["plain", "bounded"])
def test_noise_follows_the_slope_of_the_target(shape: Shape) -> None:
    losses = np.log([1.0, 2.0, 8.0])
    found = target(losses, np.full(3, 1e-6), is_log=True, shape=shape)
    step = np.array([0.0, 1e-3, 1e-3])
    moved = target(losses + step, np.zeros(3), is_log=True, shape=shape)
    change = (moved.y * moved.spread + moved.centre - found.y * found.spread - found.centre) / found.spread
    assert np.sqrt(found.noise[1:]) == pytest.approx(np.abs(change[1:]), rel=0.02)


@pytest.mark.parametrize("shape", ["plain", "bounded"])
def test_equal_values_have_a_target(shape: Shape) -> None:
    assert target(np.ones(3), np.zeros(3), is_log=False, shape=shape).y.tolist() == [0.0, 0.0, 0.0]
