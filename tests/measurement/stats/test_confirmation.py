"""The winner's curse and its cure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measurement.stats import confirm, expected_optimism, paired_ratio

positive = st.floats(0.1, 10)
finalists = st.lists(st.lists(st.tuples(positive, positive), min_size=1, max_size=5), min_size=1, max_size=5)


@given(finalists, st.sampled_from([0.9, 0.95, 0.99]))
def test_each_interval_has_bonferronis_level(data: list[list[tuple[float, float]]], family: float) -> None:
    pairs = [([a for a, _ in one], [b for _, b in one]) for one in data]
    got = confirm(pairs, family_level=family)
    for interval, (candidate, baseline) in zip(got, pairs, strict=True):
        assert interval == paired_ratio(candidate, baseline, level=1 - (1 - family) / len(pairs))


def test_all_intervals_hold_together_and_the_searchs_own_do_not() -> None:
    random = np.random.default_rng(1)
    studies = 800
    together = lucky = 0
    for _ in range(studies):
        search = np.exp(random.normal(0, 0.07, (12, 4)))
        best = search[np.log(search).mean(axis=1).argmin()]
        naive = paired_ratio(best.tolist(), [1.0] * 4)
        lucky += naive.low <= 1 <= naive.high
        fresh = np.exp(random.normal(0, 0.07, (3, 6)))
        got = confirm([(row.tolist(), [1.0] * 6) for row in fresh], family_level=0.95)
        together += all(interval.low <= 1 <= interval.high for interval in got)
    assert 0.93 <= together / studies <= 0.97
    assert lucky / studies < 0.85


@pytest.mark.parametrize("count", [2, 5, 20])
def test_optimism_is_what_a_simulation_finds(count: int) -> None:
    best = np.random.default_rng(count).normal(0, 0.02, (20_000, count)).max(axis=1)
    assert expected_optimism(count, 0.02) == pytest.approx(best.mean(), rel=0.02)


def test_optimism_of_two_and_three_is_known() -> None:
    """David and Nagaraja: 1 / sqrt(pi) and 3 / (2 sqrt(pi))."""
    assert expected_optimism(1, 1.0) == 0
    assert expected_optimism(2, 1.0) == pytest.approx(1 / math.sqrt(math.pi))
    assert expected_optimism(3, 1.0) == pytest.approx(1.5 / math.sqrt(math.pi))


@given(st.integers(1, 500), st.floats(0, 1))
def test_optimism_grows_with_the_candidates(count: int, error: float) -> None:
    assert 0 <= expected_optimism(count, error) <= expected_optimism(count + 1, error)


def test_refuses_arguments_out_of_range() -> None:
    with pytest.raises(ValueError, match="finalists is empty"):
        confirm([], family_level=0.95)
    with pytest.raises(ValueError, match="family_level must be between 0 and 1, got 95"):
        confirm([([1.0], [1.0])], family_level=95)
    with pytest.raises(ValueError, match="candidates must be at least 1, got 0"):
        expected_optimism(0, 1.0)
    with pytest.raises(ValueError, match="standard_error must be 0 or more and finite"):
        expected_optimism(2, -1.0)
