"""Figures of a benchmark with their 95 % intervals, which rest on its blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from orchestrator.measurement.stats import blocked_percentile_interval, percentile_interval

LEVEL = 0.95
"""Confidence level of every interval here."""

FEWEST_BLOCKS = 5
"""Below, the spread of a percentile between blocks is too uncertain to rest an interval on."""

PERCENTILES = {"median": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True)
class Figure:
    """A figure with its interval, in one unit. An end is None where the measurements cannot bound it."""

    value: float
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> Figure:
        """In another unit: everything times ``factor``, which is above 0."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Figure(self.value * factor, low, high)


def ratio_figure(numerators: Sequence[float], denominators: Sequence[float], *, level: float = LEVEL) -> Figure | None:
    """``R = sum(x) / sum(y)`` over ``k`` blocks: a mean (values, their number) or a rate (events, seconds).

    With ``e_i = x_i - R y_i`` the standard error is ``sqrt(k / (k - 1) * sum(e_i^2)) / sum(y)``, and the interval is
    ``R +- t * error`` with ``k - 1`` degrees of freedom, cut off at 0. For equal ``y_i`` it is Student's interval for
    the mean of the blocks' own means or rates; for unequal ones ``R`` is still what all requests together give, as the
    other figures of the table are. One block leaves both ends open.

    Source: ratio estimator, Cochran, Sampling Techniques, section 2.11.

    Args:
        numerators: 0 or more, one for each block.
        denominators: 0 or more, one for each block. Blocks with 0 say nothing and are left out.

    Returns:
        None when no block has a denominator above 0.
    """
    pairs = [(x, y) for x, y in zip(numerators, denominators, strict=True) if y > 0]
    if not pairs:
        return None
    tops, bottoms = np.array(pairs, dtype=float).T
    value = float(tops.sum() / bottoms.sum())
    blocks = len(pairs)
    if blocks == 1:
        return Figure(value)
    residuals = tops - value * bottoms
    error = math.sqrt(blocks / (blocks - 1) * float(residuals @ residuals)) / float(bottoms.sum())
    half = float(stdtrit(blocks - 1, (1 + level) / 2)) * error
    return Figure(value, max(0.0, value - half), value + half)


def share_figure(kept: Sequence[float], sizes: Sequence[int], *, level: float = LEVEL) -> Figure | None:
    """A share of requests: ``ratio_figure``, cut off at 1.

    Where all of ``n`` requests kept it, or none did, blocks have no spread to go by. The open end is then
    ``((1 - level) / 2) ** (1 / n)``, or 1 minus that: what independent requests give.

    Source of the latter: Clopper and Pearson, Biometrika 26, 1934.

    Args:
        kept: Of each block, between 0 and its size.
        sizes: Requests of each block.
    """
    figure = ratio_figure(kept, sizes, level=level)
    if figure is None:
        return None
    end = ((1 - level) / 2) ** (1 / sum(sizes))
    if figure.value == 1:
        return Figure(1.0, end, 1.0)
    if figure.value == 0:
        return Figure(0.0, 0.0, 1 - end)
    return Figure(figure.value, figure.low, figure.high and min(1.0, figure.high))


def percentile_figure(blocks: Sequence[Sequence[float]], percentile: float, *, level: float = LEVEL) -> Figure | None:
    """A percentile of all values, with ``blocked_percentile_interval`` from 5 blocks on, below with
    ``percentile_interval``, which takes neighbours as independent.

    Args:
        blocks: Values of each block. Blocks without any are left out.

    Returns:
        None when there is no value.
    """
    filled = [block for block in blocks if len(block)]
    if not filled:
        return None
    if len(filled) >= FEWEST_BLOCKS:
        found = blocked_percentile_interval(filled, percentile, level=level)
    else:
        found = percentile_interval(np.concatenate(filled), percentile, level=level)
    low, high = (end if math.isfinite(end) else None for end in (found.low, found.high))
    return Figure(found.value, low, high)


def latency_figures(blocks: Sequence[Sequence[float]], *, level: float = LEVEL) -> dict[str, Figure | None]:
    """One latency: figures for ``mean`` and each of ``PERCENTILES``, in the unit of the values."""
    mean = ratio_figure([math.fsum(block) for block in blocks], [len(block) for block in blocks], level=level)
    percentiles = {name: percentile_figure(blocks, value, level=level) for name, value in PERCENTILES.items()}
    return {"mean": mean, **percentiles}


def basis(blocks: int) -> str:
    """What the intervals of a benchmark with so many blocks rest on, in one or two sentences."""
    if blocks >= FEWEST_BLOCKS:
        return (
            f"95 % intervals rest on {blocks} independent blocks: means and rates on Student's t, percentiles on the "
            "spread of the blocks' shares"
        )
    means = f"means and rates on Student's t over {blocks} blocks" if blocks > 1 else "none for means and rates"
    return (
        f"95 % intervals: {means}; percentiles from order statistics, as if requests were independent, which in a "
        f"queue they are not: they are too narrow. {FEWEST_BLOCKS} blocks give better ones"
    )
