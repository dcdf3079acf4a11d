"""Intervals for percentiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement.stats import PercentileInterval, blocked_percentile_interval, percentile_interval

samples = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=200)
percentiles = st.sampled_from([1.0, 25.0, 50.0, 90.0, 95.0, 99.0])
levels = st.sampled_from([0.5, 0.9, 0.95, 0.99])


@given(samples, percentiles, levels)
def test_lies_within_scipys_interval_of_whole_ranks(values: list[float], percentile: float, level: float) -> None:
    got = percentile_interval(values, percentile, level=level)
    theirs = stats.quantile_test(values, p=percentile / 100).confidence_interval(level)
    assert got.value == pytest.approx(np.percentile(values, percentile))
    if not math.isnan(theirs.low):
        assert got.low >= theirs.low
    if not math.isnan(theirs.high):
        assert got.high <= theirs.high
    assert got.low <= got.high
    assert (got.count, got.level, got.percentile) == (len(values), level, percentile)


@given(st.integers(1, 500), percentiles, levels)
def test_is_at_most_a_rank_narrower_than_scipys(count: int, percentile: float, level: float) -> None:
    got = percentile_interval(range(count), percentile, level=level)
    theirs = stats.quantile_test(range(count), p=percentile / 100).confidence_interval(level)
    assert got.low <= theirs.low + 1 or math.isnan(theirs.low)
    assert got.high >= theirs.high - 1 or math.isnan(theirs.high)


@given(samples, percentiles)
def test_a_median_mirrors_and_units_do_not_matter(values: list[float], percentile: float) -> None:
    plain = percentile_interval(values, percentile)
    scaled = percentile_interval([2 * value for value in values], percentile)
    assert (scaled.low, scaled.high) == (2 * plain.low, 2 * plain.high)
    mirrored = percentile_interval([-value for value in values], 100 - percentile)
    assert mirrored.low == pytest.approx(-plain.high, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(("count", "bounded"), [(367, False), (368, True)])
def test_a_p99_needs_368_requests(count: int, bounded: bool) -> None:
    assert math.isfinite(percentile_interval(list(range(count)), 99.0).high) == bounded
    assert math.isfinite(stats.quantile_test(range(count), p=0.99).confidence_interval().high) == bounded


@pytest.mark.parametrize(("percentile", "count"), [(50.0, 30), (90.0, 60), (99.0, 600)])
def test_covers_the_truth_as_often_as_it_says(percentile: float, count: int) -> None:
    random = np.random.default_rng(int(percentile))
    truth = stats.lognorm.ppf(percentile / 100, 1.0)
    got = [percentile_interval(random.lognormal(size=count).tolist(), percentile) for _ in range(1000)]
    assert 0.93 <= np.mean([interval.low <= truth <= interval.high for interval in got]) <= 0.97


def covered(score: np.ndarray, percentile: float, blocked: bool) -> float:
    """Share of studies, shape (studies, blocks, requests), whose interval holds the percentile of exp(normal)."""
    truth = math.exp(stats.norm.ppf(percentile / 100))
    got: list[PercentileInterval] = [
        blocked_percentile_interval(study, percentile) if blocked else percentile_interval(study.ravel(), percentile)
        for study in np.exp(score)
    ]
    return float(np.mean([interval.low <= truth <= interval.high for interval in got]))


@pytest.mark.parametrize("percentile", [50.0, 99.0])
def test_blocks_keep_the_coverage_where_requests_resemble_each_other(percentile: float) -> None:
    random = np.random.default_rng(5)
    score = (random.normal(size=(600, 20, 100)) + 0.4 * random.normal(size=(600, 20, 1))) / math.sqrt(1.16)
    assert 0.925 <= covered(score, percentile, blocked=True) <= 0.975
    assert covered(score, percentile, blocked=False) < 0.90


@given(st.lists(st.lists(st.floats(0, 1e3), min_size=1, max_size=20), min_size=5, max_size=12), percentiles, levels)
def test_blocks_of_any_size_give_an_ordered_interval(
    blocks: list[list[float]], percentile: float, level: float
) -> None:
    got = blocked_percentile_interval(blocks, percentile, level=level)
    values = [value for block in blocks for value in block]
    assert got.low <= got.high
    assert got.count == len(values)
    assert got.value == pytest.approx(np.percentile(values, percentile))
    turned = blocked_percentile_interval(blocks[::-1], percentile, level=level)
    assert [got.low, got.high] == pytest.approx([turned.low, turned.high])


def test_blocks_that_agree_are_taken_as_independent_values() -> None:
    blocks = [[float(10 * value + block) for value in range(10)] for block in range(10)]
    got = blocked_percentile_interval(blocks, 50.0)
    assert got.low < got.value < got.high


@pytest.mark.parametrize("percentile", [0.0, 100.0, -1.0, math.nan])
def test_refuses_a_percentile_out_of_range(percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile must be between 0 and 100"):
        percentile_interval([1.0], percentile)


def test_refuses_what_is_no_sample() -> None:
    with pytest.raises(ValueError, match="values is empty"):
        percentile_interval([], 50.0)
    with pytest.raises(ValueError, match="values must be finite, got nan"):
        percentile_interval([1.0, math.nan], 50.0)
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        percentile_interval([1.0], 50.0, level=95)
    with pytest.raises(ValueError, match="blocks must be at least 5, got 4"):
        blocked_percentile_interval([[1.0]] * 4, 50.0)
    with pytest.raises(ValueError, match=r"blocks\[1\] is empty"):
        blocked_percentile_interval([[1.0], [], [1.0], [1.0], [1.0]], 50.0)
