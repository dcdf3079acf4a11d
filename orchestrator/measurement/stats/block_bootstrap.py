"""Ratio of a candidate to its baseline when neighbouring pairs resemble each other: a bootstrap of whole stretches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.measurement.stats.paired import RatioInterval, paired_ratio

MIN_STRETCHES = 5
"""With fewer, too many resamples draw the same stretch every time and have no spread."""


def bootstrap_ratio(
    candidate: Sequence[float],
    baseline: Sequence[float],
    *,
    stretch: int = 1,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> RatioInterval:
    """Ratio of candidate to baseline with a block-bootstrap-t interval on the log ratios.

    A pair of measurement blocks is never split, and ``stretch`` consecutive pairs are drawn together (circular block
    bootstrap), so that dependence over less than a stretch stays in every resample. With ``m`` the mean log ratio and
    ``s`` its standard error from the means of the ``k = pairs // stretch`` stretches, each resample gives
    ``|m* - m| / s*``; with ``q`` their ``level`` quantile, the interval is ``exp(m +- q * s)`` (symmetric bootstrap-t).

    Sources: Politis and Romano, A circular block-resampling procedure for stationary data, 1992; Gotze and Kunsch,
    Second-order correctness of the blockwise bootstrap for stationary observations, Annals of Statistics 24, 1996;
    Hall, On symmetric bootstrap confidence intervals, JRSS B 50, 1988.

    Which to use: independent pairs need ``paired_ratio``, which is as exact and narrower below 20 pairs. Dependent
    ones need this with a stretch of about ``3 (1 + r) / (1 - r)`` pairs, ``r`` being the lag-1 autocorrelation of the
    log ratios, and eight stretches or more.

    Args:
        candidate: Measurements of the candidate in their order, all above 0, in any unit.
        baseline: Measurements of the baseline in the same unit; entry ``i`` was taken next to ``candidate[i]``.
        stretch: Pairs that are drawn together, at least 1; at most a fifth of the pairs.
        level: Confidence level, between 0 and 1.
        resamples: Number of resamples, at least 100.
        seed: Seed of the resampling, 0 or more; the same seed gives the same interval.

    Returns:
        The interval. ``sd_log`` and ``dof`` are those of single pairs, as from ``paired_ratio``.

    Raises:
        ValueError: As ``paired_ratio``; or ``stretch``, ``resamples`` or ``seed`` is out of range.
    """
    plain = paired_ratio(candidate, baseline, level=level)  # It checks the measurements.
    if stretch < 1 or plain.pairs < MIN_STRETCHES * stretch:
        raise ValueError(
            f"stretch must be at least 1, and {MIN_STRETCHES} of them must fit into {plain.pairs} pairs, got {stretch}"
        )
    if resamples < 100:
        raise ValueError(f"resamples must be at least 100, got {resamples}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")

    logs = np.log(np.asarray(candidate, dtype=float)) - np.log(np.asarray(baseline, dtype=float))
    half = _half_width(logs, stretch, level, resamples, np.random.default_rng(seed))
    mean = float(logs.mean())
    low, high = (float(np.exp(min(mean + side * half, 709.0))) for side in (-1, 1))
    return RatioInterval(plain.ratio, low, high, plain.pairs, level, plain.sd_log, plain.dof)


def _half_width(logs: np.ndarray, stretch: int, level: float, resamples: int, random: np.random.Generator) -> float:
    count = len(logs)
    stretches = count // stretch
    # Means of all circular stretches; every `stretch`-th of them are the disjoint ones.
    sums = np.cumsum(np.concatenate([[0.0], logs, logs[: stretch - 1]]))
    means = (sums[stretch:] - sums[:-stretch]) / stretch
    error = float(means[: stretches * stretch : stretch].std(ddof=1)) / math.sqrt(stretches)
    draws = means[random.integers(0, count, (resamples, stretches))]
    off = np.abs(draws.mean(axis=1) - logs.mean())
    errors = draws.std(axis=1, ddof=1) / math.sqrt(stretches)
    tiny = 1e-12 * (1.0 + float(np.abs(logs).max()))
    if error <= tiny:
        return 0.0
    # A resample that drew one stretch only has no spread: its t value is infinite, unless it hit the mean.
    t_values = np.where(errors > tiny, off / np.maximum(errors, tiny), np.where(off > tiny, math.inf, 0.0))
    return float(np.quantile(t_values, level, method="higher")) * error
