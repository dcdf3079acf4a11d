"""How much better one point is than another, from measurements taken in pairs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from orchestrator.measurement.distributions import t_quantile


@dataclass(frozen=True)
class RatioInterval:
    """Ratio of a candidate to its baseline, with a confidence interval.

    Attributes:
        ratio: Geometric mean of candidate / baseline over the pairs, or over the means of their starts; above 0, no
            unit.
        low: Lower end of the interval, 0 when the spread is unknown.
        high: Upper end of the interval, infinite when the spread is unknown.
        pairs: Number of pairs, at least 1.
        level: Confidence level of the interval, between 0 and 1.
        sd_log: Standard deviation of the log ratio of one pair, or of one start where pairs are of several; infinite
            when it is unknown (``dof`` is 0).
        dof: Degrees of freedom behind ``sd_log``.
        starts: Starts of the engines that the pairs are of, at least 1.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    level: float
    sd_log: float
    dof: int
    starts: int = 1

    @property
    def error_log(self) -> float:
        """Standard error of the log of ``ratio``."""
        return self.sd_log / math.sqrt(self.pairs if self.starts == 1 else self.starts)


class PooledNoise:
    """Spread of log ratios within groups, pooled over groups that share their noise but not their mean.

    The pooled variance is ``sum_g SS_g / sum_g (n_g - 1)``, where ``SS_g`` is the sum of squared deviations of group
    ``g`` from its own mean: the error mean square of a one-way analysis of variance (NIST/SEMATECH e-Handbook of
    Statistical Methods, section 7.4.3).
    """

    def __init__(self) -> None:
        self._squares = 0.0
        self._dof = 0

    def add(self, log_ratios: Sequence[float]) -> None:
        """Add one group of log ratios. A group of one tells nothing about spread and changes nothing.

        Raises:
            ValueError: The group is empty or holds a number that is not finite.
        """
        squares, dof = _within_group(log_ratios)
        self._squares += squares
        self._dof += dof

    @property
    def dof(self) -> int:
        """Degrees of freedom: the sum of ``n - 1`` over the groups."""
        return self._dof

    @property
    def sd(self) -> float:
        """Pooled standard deviation of a log ratio; infinite while no group had two members."""
        return _sd(self._squares, self._dof)

    def _with(self, squares: float, dof: int) -> PooledNoise:
        joined = PooledNoise()
        joined._squares = self._squares + squares
        joined._dof = self._dof + dof
        return joined


def paired_ratio(
    candidate: Sequence[float],
    baseline: Sequence[float],
    *,
    level: float = 0.95,
    pooled: PooledNoise | None = None,
    starts: Sequence[Hashable] | None = None,
) -> RatioInterval:
    """Ratio of candidate to baseline with a Student t interval on the log ratios.

    With ``x_i = log(candidate_i / baseline_i)`` for ``n`` pairs, mean ``m`` and standard deviation ``s``, the interval
    is ``exp(m +- t * s / sqrt(n))``, ``t`` being the ``(1 + level) / 2`` quantile of Student's distribution with
    ``n - 1`` degrees of freedom. This is the one-sample t interval (NIST/SEMATECH e-Handbook of Statistical Methods,
    section 1.3.5.2) on differences of logs, so that what a pair has in common cancels.

    Pairs of one start of the engines share what that start was like, and are not independent of each other. Where
    there are several starts, ``x_i`` is the mean of the pairs of one, and ``n`` the number of starts: the analysis of
    cluster means (Donner and Klar, Design and Analysis of Cluster Randomization Trials in Health Research, 2000).

    Args:
        candidate: Measurements of the candidate, all above 0, in any unit.
        baseline: Measurements of the baseline in the same unit; entry ``i`` was taken next to ``candidate[i]``.
        level: Confidence level, between 0 and 1.
        pooled: Noise of *other* groups. When given, ``s`` and its degrees of freedom are pooled over those groups and
            these pairs. These pairs are added here: do not add them to ``pooled`` first. It is not changed.
        starts: Names the start of the engines that each pair is of. Without it, or where all are of one, the interval
            is that of these very engines.

    Returns:
        The interval. Without any estimate of spread (one pair and no pooled noise) it reaches from 0 to infinity.

    Raises:
        ValueError: The lengths differ, there is no pair, a measurement is not a finite number above 0, or ``level`` is
            out of range.
    """
    if len(candidate) != len(baseline):
        raise ValueError(f"{len(candidate)} candidate measurements but {len(baseline)} of the baseline")
    if starts is not None and len(starts) != len(candidate):
        raise ValueError(f"{len(starts)} starts named for {len(candidate)} pairs")
    if len(candidate) == 0:
        raise ValueError("no pair to compare")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    for role, values in (("candidate", candidate), ("baseline", baseline)):
        for index, value in enumerate(values):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{role}[{index}] must be a finite number above 0, got {value}")

    # A difference of logs, not the log of a quotient: the quotient of two extreme numbers can overflow.
    logs = [math.log(a) - math.log(b) for a, b in zip(candidate, baseline, strict=True)]
    pairs, count = len(logs), 1 if starts is None else len(set(starts))
    if starts is not None and count > 1:
        logs = _means(logs, starts)
    mean = math.fsum(logs) / len(logs)
    noise = (PooledNoise() if pooled is None else pooled)._with(*_within_group(logs))
    ratio = _exp(mean)
    if noise.dof == 0:
        return RatioInterval(ratio, 0.0, math.inf, pairs, level, math.inf, 0, count)
    half = t_quantile(noise.dof, (1 + level) / 2) * noise.sd / math.sqrt(len(logs))
    return RatioInterval(ratio, _exp(mean - half), _exp(mean + half), pairs, level, noise.sd, noise.dof, count)


def _means(log_ratios: Sequence[float], starts: Sequence[Hashable]) -> list[float]:
    """One mean for each start."""
    of_start: dict[Hashable, list[float]] = {}
    for value, start in zip(log_ratios, starts, strict=True):
        of_start.setdefault(start, []).append(value)
    return [math.fsum(values) / len(values) for values in of_start.values()]


def _within_group(log_ratios: Sequence[float]) -> tuple[float, int]:
    """Sum of squared deviations from the group's mean, and ``n - 1``."""
    if len(log_ratios) == 0:
        raise ValueError("no log ratio in the group")
    if not all(math.isfinite(value) for value in log_ratios):
        raise ValueError(f"log ratios must be finite, got {list(log_ratios)}")
    mean = math.fsum(log_ratios) / len(log_ratios)
    return math.fsum((value - mean) ** 2 for value in log_ratios), len(log_ratios) - 1


def _sd(squares: float, dof: int) -> float:
    return math.sqrt(squares / dof) if dof else math.inf


def _exp(value: float) -> float:
    """``exp`` that is infinite where the result does not fit a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
