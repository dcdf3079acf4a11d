"""Intervals for a percentile, such as the p99 of TTFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.measurement.distributions import beta_cdf, t_quantile


@dataclass(frozen=True)
class PercentileInterval:
    """A percentile with a confidence interval, in the unit of the values.

    Attributes:
        value: ``numpy.percentile`` of all values (linear interpolation), as in the metrics.
        low: Lower end; minus infinity where the values cannot bound it.
        high: Upper end; infinite where the values cannot bound it.
        percentile: Between 0 and 100.
        level: Confidence level, between 0 and 1.
        count: Number of values.
    """

    value: float
    low: float
    high: float
    percentile: float
    level: float
    count: int


def percentile_interval(values: ArrayLike, percentile: float, *, level: float = 0.95) -> PercentileInterval:
    """Interval from order statistics, for independent values of any continuous distribution.

    The number of values below the true percentile is binomial, so the probability that the ``r``-th smallest lies below
    it is the incomplete beta function ``I_p(r, n + 1 - r)``. The ends are the ranks ``r`` where that is
    ``(1 +- level) / 2``; between whole ranks the values are interpolated, which brings the coverage of small samples
    close to the level, where whole ranks overshoot it.

    A p99 at 95 % has an upper end from 368 values on (``0.99^n <= 0.025``); a smaller sample gives infinity.

    Source: Hutson, Calculating nonparametric confidence intervals for quantiles using fractional order statistics,
    Journal of Applied Statistics 26, 1999. The whole ranks are those of Conover, Practical Nonparametric Statistics,
    section 3.2 (``scipy.stats.quantile_test``).

    Args:
        values: Independent values, at least 1. For requests of one engine use ``blocked_percentile_interval``.
        percentile: Above 0 and below 100.
        level: Confidence level, between 0 and 1.

    Raises:
        ValueError: No value, a value that is not finite, or ``percentile`` or ``level`` out of range.
    """
    _check(percentile, level)
    ordered = np.sort(_finite(values, "values"))
    count, share, tail = len(ordered), percentile / 100, (1 - level) / 2
    low = _lower_end(ordered, _rank(count, share, 1 - tail))
    high = _upper_end(ordered, _rank(count, share, tail))
    return PercentileInterval(_percentile(ordered, percentile), low, high, percentile, level, count)


def blocked_percentile_interval(
    blocks: Sequence[ArrayLike], percentile: float, *, level: float = 0.95
) -> PercentileInterval:
    """Interval for values that resemble their neighbours, from blocks that are independent of each other.

    With ``v`` the percentile of all values, the share of a block's values at or below ``v`` varies between blocks. From
    that follows the standard error ``s`` of the overall share (ratio estimator over ``k`` blocks), and the interval is
    from the ``p - t s`` to the ``p + t s`` quantile of all values, ``t`` with ``k - 1`` degrees of freedom. Dependence
    inside a block is in ``s``, whatever its form.

    It stands where a block bootstrap of the percentile would: that one covers a p99 in 89 to 92 % instead of 95 %
    (``benchmarks/stats.py``), because a resample cannot hold a value beyond the largest.

    Sources: Woodruff, Confidence intervals for medians and other position measures, JASA 47, 1952; Heidelberger and
    Lewis, Quantile estimation in dependent sequences, Operations Research 32, 1984 (batches); Cochran, Sampling
    Techniques, section 2.11 (ratio estimator).

    Args:
        blocks: Values of each block, at least 5 blocks with at least 1 value each; 10 to 30 blocks are good. One long
            run is cut into equal consecutive stretches, each much longer than the dependence.
        percentile: Above 0 and below 100.
        level: Confidence level, between 0 and 1.

    Raises:
        ValueError: Fewer than 5 blocks, an empty block, a value that is not finite, or ``percentile`` or ``level`` out
            of range.
    """
    _check(percentile, level)
    if len(blocks) < 5:
        raise ValueError(f"blocks must be at least 5, got {len(blocks)}")
    arrays = [_finite(block, f"blocks[{index}]") for index, block in enumerate(blocks)]
    ordered = np.sort(np.concatenate(arrays))
    count, share = len(ordered), percentile / 100
    split = ordered[math.ceil(count * share) - 1]
    sizes = np.array([len(block) for block in arrays])
    below = np.array([np.count_nonzero(block <= split) for block in arrays])
    variance = _share_variance(below, sizes)
    if variance == 0:  # All blocks agree by chance: what independent values would have.
        variance = share * (1 - share) / count
    half = t_quantile(len(blocks) - 1, (1 + level) / 2) * math.sqrt(variance)
    # A share of s is the rank s * count, and half a rank further out for the step of the empirical distribution.
    low = _lower_end(ordered, (share - half) * count + 0.5)
    high = _upper_end(ordered, (share + half) * count + 0.5)
    return PercentileInterval(_percentile(ordered, percentile), low, high, percentile, level, count)


def _share_variance(below: np.ndarray, sizes: np.ndarray) -> float:
    """Variance of ``sum(below) / sum(sizes)`` over independent blocks."""
    blocks, total = len(sizes), sizes.sum()
    residuals = below - sizes * (below.sum() / total)
    return float(blocks / (blocks - 1) * (residuals @ residuals) / total**2)


def _rank(count: int, share: float, probability: float) -> float:
    """The rank (1 is the smallest) that lies below the percentile with this probability; may be outside 1..count."""

    first, last = 0.0, count + 1.0
    for _ in range(60):  # Bisection: the probability falls from 1 to 0 as the rank grows.
        middle = (first + last) / 2
        if beta_cdf(middle, count + 1 - middle, share) > probability:
            first = middle
        else:
            last = middle
    return (first + last) / 2


def _lower_end(ordered: np.ndarray, rank: float) -> float:
    # Solving for a rank leaves an error in the last digits, which must not turn an end into infinity.
    return -math.inf if rank < 1 - 1e-6 else _at_rank(ordered, rank)


def _upper_end(ordered: np.ndarray, rank: float) -> float:
    return math.inf if rank > len(ordered) + 1e-6 else _at_rank(ordered, rank)


def _at_rank(ordered: np.ndarray, rank: float) -> float:
    """The value at a rank, interpolated; beyond the sample its nearest value."""
    return float(np.interp(rank, np.arange(1, len(ordered) + 1), ordered))


def _percentile(ordered: np.ndarray, percentile: float) -> float:
    return float(np.percentile(ordered, percentile))


def _finite(values: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError(f"{name} is empty")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _check(percentile: float, level: float) -> None:
    if not 0 < percentile < 100:
        raise ValueError(f"percentile must be between 0 and 100, got {percentile}")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
