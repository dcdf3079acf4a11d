"""Which of the last few candidates to take, and what that choice is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.measurement.stats.paired import RatioInterval

DRAWS = 100_000
"""Gives a probability to 0.2 percentage points."""


@dataclass(frozen=True)
class Selection:
    """The choice among ``k`` candidates.

    Attributes:
        chosen: Index of the candidate with the smallest expected loss.
        probability_best: Probability of each candidate to be the best one; they sum to 1.
        expected_loss: How much worse than the best each candidate is on average, as a share (0.01 is 1 %).
    """

    chosen: int
    probability_best: tuple[float, ...]
    expected_loss: tuple[float, ...]


def select(
    candidates: Sequence[RatioInterval], direction: Literal["minimize", "maximize"], *, seed: int = 0
) -> Selection:
    """Choose by expected loss, which weighs a wrong choice by what it costs: two equals need no decision.

    Knowing nothing beforehand, the true log ratio of a candidate is ``log(ratio) + T * error_log``, ``T`` of Student's
    distribution with ``dof`` degrees of freedom (normal noise, reference prior). From joint draws,
    the probability of being best is the share of draws won, and the expected loss is the mean distance from the best,
    ``exp(mean(max_j x_j - x_i)) - 1``.

    Source: Chick and Inoue, New two-stage and sequential procedures for selecting the best simulated system, Operations
    Research 49, 2001 (opportunity cost); Berger and Deely, A Bayesian approach to ranking and selection, JASA 83, 1988.

    The prior knows nothing of how the candidates were found: ratios from the search that chose them are too good
    (``confirmation``), and so are the probabilities. Give it ratios from fresh pairs.

    Args:
        candidates: Ratio to the baseline of each candidate, at least 1, each from pairs of its own.
        direction: Whether a small or a large ratio is good.
        seed: Seed of the draws, 0 or more.

    Raises:
        ValueError: No candidate; one whose ``dof`` is below 2, which leaves the expected loss infinite; or a
            ``direction`` or ``seed`` out of range.
    """
    if not candidates:
        raise ValueError("candidates is empty")
    if direction not in ("minimize", "maximize"):
        raise ValueError(f"direction must be minimize or maximize, got {direction!r}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    for index, candidate in enumerate(candidates):
        if candidate.dof < 2:
            raise ValueError(f"candidates[{index}] has dof {candidate.dof}, but 2 are needed: measure more pairs")

    random = np.random.default_rng(seed)
    sign = 1.0 if direction == "maximize" else -1.0
    gains = np.stack([_draw(candidate, sign, random) for candidate in candidates])
    best = gains.max(axis=0)
    won = gains == best
    probability = (won / won.sum(axis=0)).mean(axis=1)  # Candidates without any spread can tie.
    loss = np.expm1((best - gains).mean(axis=1))
    return Selection(int(np.argmin(loss)), tuple(map(float, probability)), tuple(map(float, loss)))


def _draw(candidate: RatioInterval, sign: float, random: np.random.Generator) -> np.ndarray:
    return sign * math.log(candidate.ratio) + candidate.error_log * random.standard_t(candidate.dof, DRAWS)
