from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement.stats import blocked_percentile_interval, percentile_interval
from orchestrator.sweep.bench.intervals import (
    FEWEST_BLOCKS,
    PERCENTILES,
    basis,
    latency_figures,
    percentile_figure,
    ratio_figure,
    share_figure,
)

number = st.floats(0.001, 1000.0)
blocks_of_values = st.lists(st.lists(number, min_size=1, max_size=30), min_size=1, max_size=9)


@given(st.lists(number, min_size=2, max_size=20), number)
def test_blocks_of_equal_size_give_students_interval_of_their_rates(counts: list[float], seconds: float) -> None:
    figure = ratio_figure(counts, [seconds] * len(counts))
    assert figure is not None
    rates = np.array(counts) / seconds
    assert figure.value == pytest.approx(rates.mean())
    half = stats.t.ppf(0.975, len(rates) - 1) * rates.std(ddof=1) / math.sqrt(len(rates))
    assert figure.low == pytest.approx(max(0.0, rates.mean() - half), abs=1e-9 * rates.mean())
    assert figure.high == pytest.approx(rates.mean() + half)


@given(st.lists(st.tuples(number, number), min_size=1, max_size=20))
def test_a_ratio_is_that_of_the_totals_and_lies_between_its_ends(pairs: list[tuple[float, float]]) -> None:
    tops, bottoms = zip(*pairs, strict=True)
    figure = ratio_figure(tops, bottoms)
    assert figure is not None
    assert figure.value == pytest.approx(sum(tops) / sum(bottoms))
    if len(pairs) == 1:
        assert (figure.low, figure.high) == (None, None)
    else:
        assert figure.low is not None
        assert figure.high is not None
        assert 0 <= figure.low <= figure.value <= figure.high


def test_the_interval_of_a_rate_covers_it_as_often_as_it_says() -> None:
    """Exponential times in blocks of different length: 2,000 studies, of which 95 % give 1,900 (sd 10)."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        sizes = rng.integers(20, 60, size=8)
        seconds = [float(rng.exponential(0.5, size=size).sum()) for size in sizes]
        figure = ratio_figure(sizes.tolist(), seconds)
        assert figure is not None
        assert figure.low is not None
        assert figure.high is not None
        covered += figure.low <= 2.0 <= figure.high
    assert 0.93 <= covered / 2000 <= 0.97


def test_blocks_without_a_value_are_left_out() -> None:
    assert ratio_figure([], []) is None
    assert ratio_figure([0.0], [0.0]) is None
    assert ratio_figure([3.0, 0.0, 5.0], [1.0, 0.0, 1.0]) == ratio_figure([3.0, 5.0], [1.0, 1.0])
    assert percentile_figure([[], []], 50.0) is None
    assert latency_figures([[]])["mean"] is None


@given(blocks_of_values, st.sampled_from(sorted(PERCENTILES.values())))
def test_a_percentile_is_that_of_all_values_by_the_rule_for_so_many_blocks(
    blocks: list[list[float]], percentile: float
) -> None:
    figure = percentile_figure(blocks, percentile)
    assert figure is not None
    values = np.concatenate(blocks)
    assert figure.value == pytest.approx(float(np.percentile(values, percentile)))
    if len(blocks) >= FEWEST_BLOCKS:
        expected = blocked_percentile_interval(blocks, percentile)
    else:
        expected = percentile_interval(values, percentile)
    for end, other in ((figure.low, expected.low), (figure.high, expected.high)):
        assert end == (other if math.isfinite(other) else None)


@given(blocks_of_values, st.integers(-20, 20))
def test_another_unit_scales_a_figure_and_its_ends(blocks: list[list[float]], power: int) -> None:
    factor = 2.0**power  # exact: other products may make two values equal that were not
    for stat, figure in latency_figures(blocks).items():
        scaled = latency_figures([[value * factor for value in block] for block in blocks])[stat]
        assert figure is not None
        assert scaled is not None
        once = figure.scaled(factor)
        for mine, theirs in ((once.value, scaled.value), (once.low, scaled.low), (once.high, scaled.high)):
            assert (mine is None) == (theirs is None)
            assert mine is None or mine == pytest.approx(theirs, abs=1e-6 * once.value)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.data())
def test_a_share_and_its_ends_are_shares(sizes: list[int], data: st.DataObject) -> None:
    kept = [data.draw(st.integers(0, size)) for size in sizes]
    figure = share_figure(kept, sizes)
    assert figure is not None
    for end in (figure.low, figure.value, figure.high):
        assert end is None or 0 <= end <= 1
    if len(sizes) > 1:
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value <= figure.high


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_share_of_all_or_none_has_the_exact_end_of_independent_requests(is_kept: bool) -> None:
    sizes = [20, 30, 50]
    figure = share_figure([size * is_kept for size in sizes], sizes)
    assert figure is not None
    exact = stats.binomtest(100 * is_kept, 100).proportion_ci(0.95, method="exact")
    assert figure.low == pytest.approx(exact.low)
    assert figure.high == pytest.approx(exact.high)


def test_the_basis_is_told_for_any_number_of_blocks() -> None:
    assert "5 independent blocks" in basis(5)
    assert "Student's t over 3 blocks" in basis(3)
    assert "as if requests were independent" in basis(3)
    assert "none for means and rates" in basis(1)
