"""The bootstrap of whole stretches of pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement.stats import bootstrap_ratio, paired_ratio

positive = st.floats(1e-3, 1e3)
pairs = st.lists(st.tuples(positive, positive), min_size=5, max_size=20)


def split(data: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in data], [b for _, b in data]


@settings(max_examples=50, deadline=None)
@given(pairs, st.integers(0, 5))
def test_holds_the_ratio_in_its_middle_and_repeats_by_seed(data: list[tuple[float, float]], seed: int) -> None:
    candidate, baseline = split(data)
    got = bootstrap_ratio(candidate, baseline, resamples=200, seed=seed)
    assert got == bootstrap_ratio(candidate, baseline, resamples=200, seed=seed)
    plain = paired_ratio(candidate, baseline)
    assert (got.ratio, got.sd_log, got.dof, got.pairs) == (plain.ratio, plain.sd_log, plain.dof, plain.pairs)
    assert got.low <= got.ratio * (1 + 1e-9)
    assert got.high >= got.ratio * (1 - 1e-9)
    if got.low > 0 and got.high < 1e300:
        assert math.log(got.high / got.ratio) == pytest.approx(math.log(got.ratio / got.low), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(pairs)
def test_a_higher_level_is_wider(data: list[tuple[float, float]]) -> None:
    candidate, baseline = split(data)
    narrow, wide = (bootstrap_ratio(candidate, baseline, level=level, resamples=200) for level in (0.5, 0.95))
    assert wide.low <= narrow.low
    assert wide.high >= narrow.high


def test_agrees_with_the_t_interval_on_many_normal_pairs() -> None:
    candidate = np.exp(np.random.default_rng(1).normal(0.1, 0.05, 400)).tolist()
    got, plain = bootstrap_ratio(candidate, [1.0] * 400), paired_ratio(candidate, [1.0] * 400)
    assert math.log(got.high / got.low) == pytest.approx(math.log(plain.high / plain.low), rel=0.05)


def test_agrees_with_scipys_bootstrap_on_many_pairs() -> None:
    logs = np.random.default_rng(2).normal(0.1, 0.05, 400)
    theirs = stats.bootstrap((logs,), np.mean, n_resamples=2000, rng=np.random.default_rng(3)).confidence_interval
    got = bootstrap_ratio(np.exp(logs).tolist(), [1.0] * 400)
    assert math.log(got.high) - math.log(got.low) == pytest.approx(theirs.high - theirs.low, rel=0.1)


def test_covers_the_truth_where_pairs_resemble_their_neighbours() -> None:
    random = np.random.default_rng(4)
    studies, count = 400, 60
    shocks = random.normal(0, 0.05, (studies, count + 30))
    for step in range(1, count + 30):
        shocks[:, step] += 0.5 * shocks[:, step - 1]
    hits = {"bootstrap": 0, "t": 0}
    for logs in shocks[:, 30:]:
        candidate = np.exp(logs).tolist()
        for name, got in (
            ("bootstrap", bootstrap_ratio(candidate, [1.0] * count, stretch=6, resamples=500)),
            ("t", paired_ratio(candidate, [1.0] * count)),
        ):
            hits[name] += got.low <= 1 <= got.high
    assert 0.90 <= hits["bootstrap"] / studies <= 0.98
    assert hits["t"] / studies < 0.82


def test_equal_pairs_give_a_point() -> None:
    got = bootstrap_ratio([0.8] * 6, [1.0] * 6)
    assert [got.low, got.high] == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize(("count", "stretch"), [(4, 1), (9, 2), (10, 0), (10, 3)])
def test_refuses_too_few_stretches(count: int, stretch: int) -> None:
    with pytest.raises(ValueError, match="stretch must be at least 1"):
        bootstrap_ratio([1.0] * count, [1.0] * count, stretch=stretch)


def test_refuses_arguments_out_of_range() -> None:
    ones = [1.0] * 5
    with pytest.raises(ValueError, match="resamples must be at least 100, got 99"):
        bootstrap_ratio(ones, ones, resamples=99)
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        bootstrap_ratio(ones, ones, seed=-1)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        bootstrap_ratio(ones, ones, level=95)
    with pytest.raises(ValueError, match=r"candidate\[2\]"):
        bootstrap_ratio([1.0, 1.0, 0.0, 1.0, 1.0], ones)
