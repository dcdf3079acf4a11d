"""When to stop measuring pairs: better, worse, or equal within a margin, with a bound on false verdicts."""

from __future__ import annotations

import math
from typing import Literal

from orchestrator.measurement.stats.paired import PooledNoise

Verdict = Literal["undecided", "better", "worse", "equal"]

MAX_BET = 3.0
"""Largest bet. It wins a factor of 1.995 (the limit is 2) and loses one of 202, which eight wins make up for."""


class SequentialTest:
    """Looks after every pair and stops as soon as the truth is clear.

    The true gain ``mu`` is the centre of the pairs' log ratios, turned so that above 0 is better. A verdict states

    - ``better``: ``mu > 0``;
    - ``worse``: ``mu < 0``;
    - ``equal``: ``-log(1 + delta) < mu < log(1 + delta)``.

    **Error control.** Whatever ``mu`` is and however long one measures, the probability that a false verdict is ever
    given is at most ``error``. At ``mu = 0``, "better" and "worse" are false: each has at most ``error / 2``.

    **Assumption.** Given the past, each log ratio is spread symmetrically around ``mu``. No shape, no variance, no
    constancy of the noise is assumed. In an A/A comparison a fair coin for which side of a pair goes first makes this
    exact, also for drifting, autocorrelated and heavy-tailed noise: swapping the two flips the sign of the log ratio.

    **Method.** One bettor plays against each of four hypotheses: ``mu <= 0``, ``mu <= -log(1 + delta)``, ``mu >= 0``
    and ``mu >= log(1 + delta)``. With ``y`` the log ratio seen from the hypothesis' border, its capital is multiplied
    by ``2 / (1 + exp(-2 z))``, where ``z`` is odd and non-decreasing in ``y`` and otherwise fixed by the past. The
    factors for ``y`` and ``-y`` add up to 2, so under the hypothesis the expected factor is at most 1 and the capital a
    non-negative supermartingale. By Ville's inequality it ever reaches ``2 / error`` with probability at most
    ``error / 2``; then the hypothesis is rejected. Any truth makes at most two of the four hypotheses true.

    The bet ``z = gain * y / variance`` is the best one for a normal log ratio of mean ``gain`` (its likelihood ratio of
    ``y`` to ``-y`` is ``exp(2 gain y / variance)``). ``gain`` is ``log(1 + delta)``, or more where the past shows more.

    Sources: Ville, Etude critique de la notion de collectif, 1939; de la Pena, A general class of exponential
    inequalities for martingales and ratios, Annals of Probability 27, 1999 (symmetric increments); Ramdas, Grunwald,
    Vovk and Shafer, Game-theoretic statistics and safe anytime-valid inference, Statistical Science 38, 2023.

    The ratio of the pairs up to a verdict is biased away from 1, since those pairs decided when to stop: state a ratio
    from fresh pairs (``confirmation``). A verdict takes at least 8 pairs (11 without ``noise``) at an error of 1 %.

    Args:
        delta: Margin as a share, between 0 and 1: 0.02 is 2 %.
        error: Bound on the probability of a false verdict, between 0 and 1.
        noise: Spread of earlier, other pairs. It makes the first bets possible and good; a wrong one costs pairs, never
            validity. It is read once and not changed.

    Raises:
        ValueError: ``delta`` or ``error`` is out of range.
    """

    def __init__(self, delta: float, *, error: float = 0.01, noise: PooledNoise | None = None) -> None:
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, got {delta}")
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, got {error}")
        self._margin = math.log1p(delta)
        self._needed = math.log(2 / error)
        self._above_zero, self._above_minus = _Bettor(0.0, 1), _Bettor(-self._margin, 1)
        self._below_zero, self._below_plus = _Bettor(0.0, -1), _Bettor(self._margin, -1)
        self._verdict: Verdict = "undecided"
        self._pairs = 0
        self._mean = 0.0
        self._dof = noise.dof if noise else 0
        self._squares = noise.sd**2 * noise.dof if noise and noise.dof else 0.0

    @property
    def verdict(self) -> Verdict:
        """The first verdict reached; it never changes afterwards."""
        return self._verdict

    @property
    def pairs(self) -> int:
        """Pairs added so far."""
        return self._pairs

    @property
    def evidence(self) -> dict[str, float]:
        """Log of the capital won against each hypothesis, by what its rejection says; ``log(2 / error)`` rejects it."""
        return {
            "above 0": self._above_zero.capital,
            "above -delta": self._above_minus.capital,
            "below 0": self._below_zero.capital,
            "below +delta": self._below_plus.capital,
        }

    def add(self, log_gain: float) -> Verdict:
        """Take one pair's log ratio (above 0: the candidate is better) and return the verdict so far.

        Raises:
            ValueError: ``log_gain`` is not finite.
        """
        if not math.isfinite(log_gain):
            raise ValueError(f"log_gain must be finite, got {log_gain}")
        if self._dof >= 2:  # Less would bet on a guess of the spread.
            unsure = 2 * math.sqrt(self._squares / self._dof / self._pairs) if self._pairs else math.inf
            for bettor in (self._above_zero, self._above_minus, self._below_zero, self._below_plus):
                gain = max(bettor.side * (self._mean - bettor.border) - unsure, self._margin)
                bettor.bet(log_gain, gain, self._squares, self._dof)
        self._learn(log_gain)
        if self._verdict == "undecided":
            self._verdict = self._judge()
        return self._verdict

    def _learn(self, log_gain: float) -> None:
        """Welford's update of mean and squared deviations."""
        self._pairs += 1
        deviation = log_gain - self._mean
        self._mean += deviation / self._pairs
        if self._pairs > 1:
            self._squares += deviation * (log_gain - self._mean)
            self._dof += 1

    def _judge(self) -> Verdict:
        if self._above_zero.peak >= self._needed:
            return "better"
        if self._below_zero.peak >= self._needed:
            return "worse"
        if min(self._above_minus.peak, self._below_plus.peak) >= self._needed:
            return "equal"
        return "undecided"


class _Bettor:
    """Bets that the log ratios lie above (``side`` 1) or below (``side`` -1) a border. Capital is kept as its log."""

    def __init__(self, border: float, side: Literal[1, -1]) -> None:
        self.border = border
        self.side = side
        self.capital = 0.0
        self.peak = 0.0

    def bet(self, log_gain: float, gain: float, squares: float, dof: int) -> None:
        z = _bet(self.side * (log_gain - self.border), gain, squares, dof)
        self.capital += math.log(2) - math.log1p(math.exp(-2 * z))
        self.peak = max(self.peak, self.capital)


def _bet(y: float, gain: float, squares: float, dof: int) -> float:
    """``gain * y / variance``, with this ``y`` counted in the variance, so that a first outlier does not ruin.

    ``y / (squares + y^2)`` falls again beyond ``sqrt(squares)``; cutting ``y`` off there keeps the bet non-decreasing.
    """
    if squares == 0:  # No spread at all: a deterministic engine.
        return math.copysign(MAX_BET, y) if y else 0.0
    limit = math.sqrt(squares)
    y = min(max(y, -limit), limit)
    return min(max(gain * y * (dof + 1) / (squares + y * y), -MAX_BET), MAX_BET)
