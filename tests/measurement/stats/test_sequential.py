"""The sequential test: false verdicts stay below the bound, and true ones come."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.measurement.stats import PooledNoise, SequentialTest
from orchestrator.measurement.stats.sequential import MAX_BET, _bet

magnitudes = st.lists(st.floats(0.001, 2.0), min_size=4, max_size=8)
gains = st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40)
MARGIN = math.log(1.02)


def noise_of(sd: float, groups: int = 10) -> PooledNoise:
    noise = PooledNoise()
    for _ in range(groups):
        noise.add([-sd / math.sqrt(2), sd / math.sqrt(2)])
    return noise


def mean_capital(sizes: list[float], centre: float, hypothesis: str, noise: PooledNoise | None) -> float:
    """Capital at the end, averaged over every way in which the signs of symmetric noise can fall."""
    total = 0.0
    for signs in itertools.product((-1, 1), repeat=len(sizes)):
        test = SequentialTest(0.02, noise=noise)
        for sign, size in zip(signs, sizes, strict=True):
            test.add(centre + sign * size)
        total += math.exp(test.evidence[hypothesis])
    return total / float(2 ** len(sizes))


@pytest.mark.parametrize("known_noise", [False, True])
@pytest.mark.parametrize(
    ("hypothesis", "border"), [("above 0", 0.0), ("above -delta", -MARGIN), ("below 0", 0.0), ("below +delta", MARGIN)]
)
@settings(max_examples=6, deadline=None)
@given(sizes=magnitudes, inside=st.floats(0, 0.3))
def test_capital_is_a_fair_game_on_the_border_and_a_losing_one_inside(
    known_noise: bool, hypothesis: str, border: float, sizes: list[float], inside: float
) -> None:
    noise = noise_of(0.05) if known_noise else None
    assert mean_capital(sizes, border, hypothesis, noise) == pytest.approx(1, rel=1e-9)
    deeper = border - inside if hypothesis.startswith("above") else border + inside
    assert mean_capital(sizes, deeper, hypothesis, noise) <= 1 + 1e-9


@given(st.floats(1e-6, 1.0), st.floats(1e-9, 10.0), st.integers(2, 500), st.floats(-5, 5), st.floats(-5, 5))
def test_bet_is_odd_bounded_and_never_falls(gain: float, squares: float, dof: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert _bet(-one, gain, squares, dof) == -_bet(one, gain, squares, dof)
    assert abs(_bet(one, gain, squares, dof)) <= MAX_BET
    assert _bet(low, gain, squares, dof) <= _bet(high, gain, squares, dof) + 1e-12


@given(gains)
def test_turning_the_signs_turns_the_verdict(data: list[float]) -> None:
    there, back = SequentialTest(0.02, error=0.2), SequentialTest(0.02, error=0.2)
    turned = {"better": "worse", "worse": "better", "equal": "equal", "undecided": "undecided"}
    for log_gain in data:
        assert turned[there.add(log_gain)] == back.add(-log_gain)
    assert there.evidence["above 0"] == pytest.approx(back.evidence["below 0"], abs=1e-9)


@given(gains)
def test_a_verdict_stays(data: list[float]) -> None:
    test = SequentialTest(0.02, error=0.5)
    seen = [test.add(log_gain) for log_gain in data]
    first = next((verdict for verdict in seen if verdict != "undecided"), "undecided")
    assert test.verdict == first
    assert test.pairs == len(data)
    assert set(seen[seen.index(first) :]) == {first}


@pytest.mark.parametrize(
    ("log_gain", "verdict"), [(0.05, "better"), (-0.05, "worse"), (0.0, "equal"), (0.01, "better")]
)
def test_a_deterministic_engine_is_decided_in_eleven_pairs(log_gain: float, verdict: str) -> None:
    test = SequentialTest(0.02)
    seen = [test.add(log_gain) for _ in range(11)]
    assert seen == ["undecided"] * 10 + [verdict]


def test_known_noise_decides_a_large_difference_in_eight_pairs() -> None:
    test = SequentialTest(0.02, noise=noise_of(0.03))
    seen = [test.add(log_gain) for log_gain in (0.52, 0.49, 0.50, 0.51, 0.47, 0.55, 0.50, 0.50)]
    assert seen == ["undecided"] * 7 + ["better"]


def test_noise_is_read_not_changed() -> None:
    noise = noise_of(0.03)
    before = noise.dof, noise.sd
    SequentialTest(0.02, noise=noise).add(0.1)
    assert (noise.dof, noise.sd) == before


def run(log_gains: np.ndarray, error: float) -> list[str]:
    verdicts: list[str] = []
    for study in log_gains.tolist():
        test = SequentialTest(0.05, error=error)
        for log_gain in study:
            if test.add(log_gain) != "undecided":
                break
        verdicts.append(test.verdict)
    return verdicts


@pytest.mark.parametrize("shape", ["normal", "Cauchy", "growing"])
def test_false_verdicts_are_as_rare_as_promised(shape: str) -> None:
    random = np.random.default_rng(1)
    size = (1000, 200)
    noise = {
        "normal": lambda: random.normal(0, 0.05, size),
        "Cauchy": lambda: 0.03 * random.standard_cauchy(size),
        "growing": lambda: random.normal(0, 1, size) * np.linspace(0.01, 0.2, size[1]),
    }[shape]()
    same = run(noise, error=0.2)
    # The bound is 10 % each; 12.3 % of 1,000 would be two and a half standard errors above it.
    assert same.count("better") <= 123
    assert same.count("worse") <= 123
    better = run(noise + math.log(1.05), error=0.2)
    assert better.count("equal") + better.count("worse") <= 123
    assert better.count("better") > 700 or shape != "normal"


def test_needs_less_than_half_the_pairs_of_a_fixed_number() -> None:
    """A fixed number with the same bounds, 0.5 % on both sides, needs ``((2.576 + 2.576) sd / difference)^2``."""
    random = np.random.default_rng(3)
    sd = 0.05 * math.sqrt(2)
    used = []
    for study in random.normal(math.log(1.02), sd, (400, 1000)).tolist():
        test = SequentialTest(0.02)
        used.append(next(test.pairs for log_gain in study if test.add(log_gain) != "undecided"))
    assert np.mean(used) < 0.5 * (2 * 2.576 * sd / math.log(1.02)) ** 2


def test_a_coin_for_the_order_makes_it_hold_under_drift() -> None:
    """A machine that slows down by 5 % from block to block: if the candidate always goes first, it looks better."""
    random = np.random.default_rng(2)
    slope = 0.05 + random.normal(0, 0.02, (600, 100))
    coin = np.where(random.random((600, 100)) < 0.5, slope, -slope)
    assert run(slope, error=0.1).count("better") > 590
    assert run(coin, error=0.1).count("better") <= 48  # 5 % are 30; 48 is three standard errors more.


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_refuses_a_delta_that_is_no_margin(delta: float) -> None:
    with pytest.raises(ValueError, match=r"delta must be between 0 and 1, got"):
        SequentialTest(delta)


@pytest.mark.parametrize("error", [0.0, 1.0, math.nan])
def test_refuses_an_error_that_is_no_probability(error: float) -> None:
    with pytest.raises(ValueError, match=r"error must be between 0 and 1, got"):
        SequentialTest(0.02, error=error)


@pytest.mark.parametrize("log_gain", [math.nan, math.inf, -math.inf])
def test_refuses_what_is_no_log_ratio(log_gain: float) -> None:
    test = SequentialTest(0.02)
    with pytest.raises(ValueError, match="log_gain must be finite"):
        test.add(log_gain)
    assert test.pairs == 0
