"""The choice among the last candidates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from orchestrator.measurement.stats import RatioInterval, paired_ratio, select


def candidate(ratio: float, sd: float = 0.05, pairs: int = 6, dof: int = 5) -> RatioInterval:
    return RatioInterval(ratio, 0.0, math.inf, pairs, 0.95, sd, dof)


candidates = st.lists(
    st.builds(candidate, st.floats(0.5, 2.0), st.floats(0.001, 0.3), st.integers(1, 20), st.integers(2, 30)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25, deadline=None)
@given(candidates)
def test_probabilities_sum_to_one_and_the_choice_costs_least(given_candidates: list[RatioInterval]) -> None:
    got = select(given_candidates, "minimize")
    assert sum(got.probability_best) == pytest.approx(1)
    assert min(got.expected_loss) == got.expected_loss[got.chosen] >= 0
    assert got == select(given_candidates, "minimize")


@settings(max_examples=25, deadline=None)
@given(candidates)
def test_directions_mirror_each_other(given_candidates: list[RatioInterval]) -> None:
    turned = [candidate(1 / c.ratio, c.sd_log, c.pairs, c.dof) for c in given_candidates]
    small, large = select(given_candidates, "minimize"), select(turned, "maximize")
    assert small.probability_best == pytest.approx(large.probability_best, abs=0.01)
    assert small.expected_loss == pytest.approx(large.expected_loss, rel=0.1, abs=0.01)


def test_probability_and_loss_agree_with_integration() -> None:
    first, second = candidate(0.80, 0.06, 6, 5), candidate(0.82, 0.03, 4, 8)
    got = select([first, second], "minimize")
    one = stats.t(5, loc=-math.log(0.80), scale=0.06 / math.sqrt(6))
    other = stats.t(8, loc=-math.log(0.82), scale=0.03 / math.sqrt(4))
    probability, _ = integrate.quad(lambda x: one.pdf(x) * other.cdf(x), -1, 2, limit=200)
    assert got.probability_best[0] == pytest.approx(probability, abs=0.005)
    # E[max(0, other - one)] is the integral of P(one <= x < other) over x.
    loss, _ = integrate.quad(lambda x: one.cdf(x) * other.sf(x), -1, 2, limit=200)
    assert math.log1p(got.expected_loss[0]) == pytest.approx(loss, rel=0.02)


def test_more_pairs_make_a_choice_surer() -> None:
    few, many = (select([candidate(0.80, pairs=n), candidate(0.85, pairs=n)], "minimize") for n in (2, 50))
    assert few.probability_best[0] < many.probability_best[0]
    assert few.expected_loss[0] > many.expected_loss[0]


def test_equal_candidates_share_the_probability_and_cost_nothing_to_confuse() -> None:
    got = select([candidate(0.9, 0.001, 10, 9)] * 4, "maximize")
    assert got.probability_best == pytest.approx([0.25] * 4, abs=0.01)
    assert max(got.expected_loss) < 0.001


def test_candidates_without_spread_can_tie() -> None:
    got = select([candidate(0.9, 0.0), candidate(0.9, 0.0), candidate(1.0, 0.0)], "minimize")
    assert got.probability_best == (0.5, 0.5, 0.0)
    assert got.expected_loss[2] == pytest.approx(1 / 0.9 - 1)


def test_stated_probability_is_the_share_of_right_choices() -> None:
    """Candidates that differ widely, as the prior has it."""
    random = np.random.default_rng(1)
    stated, right = [], []
    for _ in range(300):
        truths = random.normal(0, 0.2, 3)
        logs = truths[:, None] + random.normal(0, 0.1, (3, 5))
        got = select([paired_ratio(np.exp(row).tolist(), [1.0] * 5) for row in logs], "maximize")
        stated.append(got.probability_best[got.chosen])
        right.append(got.chosen == truths.argmax())
    assert np.mean(right) == pytest.approx(np.mean(stated), abs=0.06)


def test_refuses_what_it_cannot_weigh() -> None:
    with pytest.raises(ValueError, match="candidates is empty"):
        select([], "minimize")
    with pytest.raises(ValueError, match=r"candidates\[1\] has dof 1"):
        select([candidate(1.0), candidate(1.0, dof=1)], "minimize")
    with pytest.raises(ValueError, match="direction must be minimize or maximize, got 'up'"):
        select([candidate(1.0)], "up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be 0 or more"):
        select([candidate(1.0)], "minimize", seed=-1)
