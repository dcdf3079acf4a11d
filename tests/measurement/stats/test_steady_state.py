"""The cut of the warm-up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measurement.stats import SteadyState, find_steady_state

series = st.lists(st.floats(-100, 100), min_size=20, max_size=80)


def by_definition(values: list[float], batch: int) -> list[float]:
    """The marginal standard error of each cut, as White, Cobb and Spratt write it."""
    count = len(values) // batch
    means = [sum(values[i * batch : (i + 1) * batch]) / batch for i in range(count)]
    marginal = []
    for cut in range(count - max(5, math.ceil(count / 4)) + 1):
        rest = means[cut:]
        mean = sum(rest) / len(rest)
        marginal.append(sum((value - mean) ** 2 for value in rest) / len(rest) ** 2)
    return marginal


@given(series, st.sampled_from([1, 2]))
def test_minimises_the_rule_as_published(values: list[float], batch: int) -> None:
    got = find_steady_state(values, batch=batch)
    marginal = by_definition(values, batch)
    assert marginal[got.first // batch] == pytest.approx(min(marginal), rel=1e-6, abs=1e-6)
    assert got.reached == (got.first // batch <= len(values) // batch // 2)


def test_cuts_a_step_where_it_ends() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, 300)
    noise[:60] += 1.0
    assert find_steady_state(noise.tolist()) == SteadyState(first=60, reached=True)


def test_a_warm_up_that_fades_is_mostly_removed() -> None:
    random = np.random.default_rng(2)
    before, after, seen = [], [], 0
    for _ in range(200):
        values = 1 + 0.5 * np.exp(-np.arange(400) / 25) + random.normal(0, 0.1, 400)
        cut = find_steady_state(values.tolist())
        seen += cut.reached
        before.append(values.mean() - 1)
        after.append(values[cut.first :].mean() - 1)
    assert seen >= 190
    assert np.mean(after) < 0.15 * np.mean(before)


def test_a_trend_never_becomes_steady() -> None:
    values = np.arange(300) + np.random.default_rng(3).normal(0, 1, 300)
    assert not find_steady_state(values.tolist()).reached


def test_a_constant_is_steady_from_the_start() -> None:
    assert find_steady_state([3.0] * 50) == SteadyState(first=0, reached=True)


def test_refuses_what_it_cannot_judge() -> None:
    with pytest.raises(ValueError, match="values must be at least 10 batches of 5, got 49"):
        find_steady_state([1.0] * 49)
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        find_steady_state([1.0] * 50, batch=0)
    with pytest.raises(ValueError, match="values must be finite, got nan"):
        find_steady_state([1.0] * 49 + [math.nan])
