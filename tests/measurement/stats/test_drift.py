"""The drift of the baseline."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement.stats import baseline_drift

series = st.lists(st.floats(0.5, 2.0), min_size=6, max_size=30)


@given(series)
def test_the_slope_is_that_of_scipy(values: list[float]) -> None:
    times = [10.0 * index for index in range(len(values))]
    got = baseline_drift(values, times)
    theirs = stats.linregress(times, np.log(values))
    assert math.log(got.change) == pytest.approx(theirs.slope * times[-1], abs=1e-9)
    assert got.low <= got.change <= got.high
    half = stats.t.ppf(0.975, len(values) - 2) * theirs.stderr * times[-1]
    if got.autocorrelation == 0:
        assert math.log(got.high / got.change) == pytest.approx(half, rel=1e-6, abs=1e-6)
    elif half > 1e-6 and got.high < 1e300:
        assert math.log(got.high / got.change) > half


@given(series, st.floats(1e-3, 1e3), st.floats(1e-2, 1e4))
def test_units_do_not_matter(values: list[float], unit: float, second: float) -> None:
    plain = baseline_drift(values, range(len(values)))
    scaled = baseline_drift([unit * value for value in values], [second * index for index in range(len(values))])
    assert scaled.change == pytest.approx(plain.change, rel=1e-6)


def test_covers_the_truth_where_blocks_resemble_their_neighbours() -> None:
    random = np.random.default_rng(1)
    studies, count = 800, 30
    logs = random.normal(0, 0.03, (studies, count + 30))
    for step in range(1, count + 30):
        logs[:, step] += 0.5 * logs[:, step - 1]
    values = np.exp(logs[:, 30:] + np.linspace(0, math.log(1.2), count))
    got = [baseline_drift(study, range(count)) for study in values]
    assert 0.90 <= np.mean([drift.low <= 1.2 <= drift.high for drift in got]) <= 0.98


def test_says_what_is_proven() -> None:
    noise = np.random.default_rng(2).normal(0, 0.01, 40)
    still = baseline_drift(np.exp(noise).tolist(), range(40))
    assert still.within(0.05)
    assert not still.exceeds(0.05)
    for factor in (1.3, 1 / 1.3):
        moved = baseline_drift(np.exp(noise + np.linspace(0, math.log(factor), 40)).tolist(), range(40))
        assert moved.exceeds(0.05)
        assert not moved.within(0.05)
    unclear = baseline_drift(np.exp(10 * noise[:8]).tolist(), range(8))
    assert not unclear.within(0.05)
    assert not unclear.exceeds(0.05)


def test_a_constant_baseline_has_no_drift() -> None:
    got = baseline_drift([5.0] * 10, range(10))
    assert [got.change, got.low, got.high] == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("values", "times", "level", "says"),
    [
        ([1.0] * 5, range(5), 0.95, "values must be at least 6, got 5"),
        ([1.0] * 6, range(5), 0.95, "times_s has 5 entries for 6 values"),
        ([1.0] * 5 + [0.0], range(6), 0.95, "values must be finite numbers above 0"),
        ([1.0] * 6, [0, 1, 2, 2, 3, 4], 0.95, "times_s must be finite and increase"),
        ([1.0] * 6, range(6), 1.0, "level must be between 0 and 1, got 1.0"),
    ],
)
def test_refuses_what_is_no_series(values: list[float], times: list[float], level: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        baseline_drift(values, times, level=level)
