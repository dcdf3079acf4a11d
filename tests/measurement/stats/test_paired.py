"""The paired ratio and its interval."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement.stats import PooledNoise, RatioInterval, paired_ratio

positive = st.floats(1e-6, 1e6)
pairs = st.lists(st.tuples(positive, positive), min_size=2, max_size=12)
groups = st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=6), max_size=5)


@given(pairs, st.sampled_from([0.5, 0.9, 0.95, 0.9833]))
def test_agrees_with_scipy_on_log_ratios(data: list[tuple[float, float]], level: float) -> None:
    candidate, baseline = zip(*data, strict=True)
    logs = np.log(candidate) - np.log(baseline)
    got = paired_ratio(candidate, baseline, level=level)
    low, high = stats.ttest_1samp(logs, 0).confidence_interval(level) if np.ptp(logs) else (logs[0], logs[0])
    assert math.log(got.ratio) == pytest.approx(np.mean(logs), abs=1e-9)
    assert got.sd_log == pytest.approx(np.std(logs, ddof=1), rel=1e-6, abs=1e-9)
    if high < 700 and low > -700:
        assert math.log(got.low) == pytest.approx(low, rel=1e-6, abs=1e-6)
        assert math.log(got.high) == pytest.approx(high, rel=1e-6, abs=1e-6)
    assert (got.pairs, got.dof, got.level) == (len(data), len(data) - 1, level)


@given(pairs, st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(data: list[tuple[float, float]], unit: float) -> None:
    candidate, baseline = zip(*data, strict=True)
    plain = paired_ratio(candidate, baseline)
    scaled = paired_ratio([unit * value for value in candidate], [unit * value for value in baseline])
    assert scaled.ratio == pytest.approx(plain.ratio, rel=1e-9)
    assert scaled.low == pytest.approx(plain.low, rel=1e-6)


@given(pairs)
def test_swapping_the_roles_inverts_the_interval(data: list[tuple[float, float]]) -> None:
    candidate, baseline = zip(*data, strict=True)
    there, back = paired_ratio(candidate, baseline), paired_ratio(baseline, candidate)
    assert math.log(there.ratio) == pytest.approx(-math.log(back.ratio), abs=1e-9)
    if there.low > 0 and there.high < math.inf and back.low > 0:
        assert math.log(there.low) == pytest.approx(-math.log(back.high), rel=1e-6, abs=1e-9)


@given(st.lists(pairs, min_size=2, max_size=6), st.sampled_from([0.9, 0.95]))
def test_where_engines_were_started_anew_one_start_is_one_observation(
    of_starts: list[list[tuple[float, float]]], level: float
) -> None:
    data = [pair for of_start in of_starts for pair in of_start]
    named = [start for start, of_start in enumerate(of_starts) for _ in of_start]
    means = [float(np.mean([math.log(a) - math.log(b) for a, b in of_start])) for of_start in of_starts]
    got = paired_ratio(*zip(*data, strict=True), level=level, starts=named)
    want = paired_ratio([math.exp(mean) for mean in means], [1.0] * len(means), level=level)
    assert (got.pairs, got.starts, got.dof) == (len(data), len(means), len(means) - 1)
    assert math.log(got.ratio) == pytest.approx(math.log(want.ratio), abs=1e-9)
    assert got.error_log == pytest.approx(want.error_log, rel=1e-6, abs=1e-9)
    if got.low > 0 and got.high < math.inf:
        assert math.log(got.low) == pytest.approx(math.log(want.low), rel=1e-6, abs=1e-6)
        assert math.log(got.high) == pytest.approx(math.log(want.high), rel=1e-6, abs=1e-6)


@given(pairs)
def test_of_one_start_pairs_are_the_observations(data: list[tuple[float, float]]) -> None:
    candidate, baseline = zip(*data, strict=True)
    assert paired_ratio(candidate, baseline, starts=["a"] * len(data)) == paired_ratio(candidate, baseline)


def test_what_differs_from_start_to_start_widens_the_interval() -> None:
    """Pairs of one start agree to 0.1 %, two starts differ by 5 %."""
    ratios = [0.9, 0.9009, 0.945, 0.9459]
    one, two = (paired_ratio(ratios, [1.0] * 4, starts=starts) for starts in ("aaaa", "aabb"))
    assert one.ratio == pytest.approx(two.ratio)
    assert two.low < 0.7 < 0.85 < one.low


@given(positive, positive)
def test_one_pair_knows_nothing_of_its_spread(candidate: float, baseline: float) -> None:
    got = paired_ratio([candidate], [baseline])
    assert got.ratio == pytest.approx(candidate / baseline)
    assert got == RatioInterval(got.ratio, 0.0, math.inf, 1, 0.95, math.inf, 0)


@given(groups, pairs)
def test_pooled_noise_is_the_within_group_mean_square(
    others: list[list[float]], data: list[tuple[float, float]]
) -> None:
    pooled = PooledNoise()
    for group in others:
        pooled.add(group)
    before = pooled.dof, pooled.sd
    candidate, baseline = zip(*data, strict=True)
    got = paired_ratio(candidate, baseline, pooled=pooled)

    own = list(np.log(candidate) - np.log(baseline))
    dof = sum(len(group) - 1 for group in [*others, own])
    variance = sum(float(np.var(group)) * len(group) for group in [*others, own]) / dof
    assert got.dof == dof
    assert got.sd_log == pytest.approx(math.sqrt(variance), rel=1e-6, abs=1e-9)
    half = stats.t.ppf(0.975, dof) * math.sqrt(variance / len(own))
    if half < 600:
        assert math.log(got.high) == pytest.approx(np.mean(own) + half, rel=1e-6, abs=1e-6)
    assert (pooled.dof, pooled.sd) == before


def test_pooled_noise_makes_one_pair_useful() -> None:
    pooled = PooledNoise()
    assert (pooled.dof, pooled.sd) == (0, math.inf)
    pooled.add([0.3])
    assert pooled.dof == 0
    pooled.add([0.01, -0.01, 0.0])
    assert pooled.dof == 2
    assert pooled.sd == pytest.approx(0.01)
    got = paired_ratio([8.0], [10.0], pooled=pooled)
    assert got.low == pytest.approx(0.8 * math.exp(-stats.t.ppf(0.975, 2) * 0.01))
    assert got.high < 1


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_interval_covers_the_truth_as_often_as_it_says(count: int) -> None:
    random = np.random.default_rng(20 + count)
    truth, studies = 0.8, 4000
    hits = 0
    for _ in range(studies):
        drift = np.exp(random.normal(0, 0.5, count))
        candidate = truth * drift * np.exp(random.normal(0, 0.05, count))
        got = paired_ratio(list(candidate), list(drift))
        hits += got.low <= truth <= got.high
    assert 0.93 <= hits / studies <= 0.97


def test_pooled_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits, studies = 0, 4000
    for _ in range(studies):
        pooled = PooledNoise()
        for _ in range(3):
            pooled.add(list(random.normal(random.normal(), 0.05, 3)))
        got = paired_ratio(list(1.3 * np.exp(random.normal(0, 0.05, 2))), [1.0, 1.0], pooled=pooled)
        hits += got.low <= 1.3 <= got.high
    assert 0.93 <= hits / studies <= 0.97


@pytest.mark.parametrize(
    ("candidate", "baseline", "says"),
    [
        ([1.0, 2.0], [1.0], "2 candidate measurements but 1"),
        ([], [], "no pair"),
        ([1.0, 0.0], [1.0, 1.0], r"candidate\[1\].*got 0.0"),
        ([1.0], [-2.0], r"baseline\[0\].*got -2.0"),
        ([math.nan], [1.0], r"candidate\[0\].*got nan"),
        ([1.0], [math.inf], r"baseline\[0\].*got inf"),
    ],
)
def test_refuses_what_is_no_measurement(candidate: list[float], baseline: list[float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        paired_ratio(candidate, baseline)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 95.0, math.nan])
def test_refuses_a_level_that_is_no_probability(level: float) -> None:
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        paired_ratio([1.0, 2.0], [1.0, 1.0], level=level)


@pytest.mark.parametrize("group", [[], [math.nan], [0.0, math.inf]])
def test_pooled_noise_refuses_what_is_no_log_ratio(group: list[float]) -> None:
    pooled = PooledNoise()
    with pytest.raises(ValueError, match="log ratio"):
        pooled.add(group)
    assert pooled.dof == 0


def test_extreme_measurements_do_not_overflow() -> None:
    got = paired_ratio([1e308, 1e300], [1e-308, 1e-300])
    assert got.high == math.inf
    assert got.low > 0


def test_import_is_light() -> None:
    heavy = ("ray", "torch", "vllm", "pydantic")
    code = f"import orchestrator.measurement.stats, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
