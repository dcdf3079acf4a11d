"""Where a series leaves its warm-up: the marginal standard error rule (MSER-5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

MIN_BATCHES = 10
MIN_REST = 0.25
"""Share of the batches that no cut goes below: a few batches may agree by chance."""


@dataclass(frozen=True)
class SteadyState:
    """Where the steady part begins.

    Attributes:
        first: Index of the first value to keep.
        reached: Whether that lies in the first half. Otherwise the series is too short to tell warm-up from trend.
    """

    first: int
    reached: bool


def find_steady_state(values: ArrayLike, *, batch: int = 5) -> SteadyState:
    """Cut the warm-up where it makes the remaining mean most certain.

    With ``Y_1 ... Y_n`` the means of ``batch`` consecutive values, the cut ``d`` minimises
    ``sum_{i > d} (Y_i - mean)^2 / (n - d)^2``, the squared standard error of the mean of what remains: a warm-up left
    in adds spread, a steady value cut off loses size. At least a quarter (and 5 means) is kept. A cut in the second
    half means that no steady state was seen.

    Sources: White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69, 1997;
    White, Cobb and Spratt, A comparison of five steady-state truncation heuristics for simulation, WSC 2000.

    Args:
        values: The series in time order, at least ``10 * batch`` values: TTFT by request, or throughput by second.
        batch: Values averaged before the rule is applied, at least 1. The published rule has 5.

    Raises:
        ValueError: ``batch`` is below 1, or ``values`` is too short or holds a number that is not finite.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    array = np.asarray(values, dtype=float)
    if len(array) < MIN_BATCHES * batch:
        raise ValueError(f"values must be at least {MIN_BATCHES} batches of {batch}, got {len(array)}")
    if not np.isfinite(array).all():
        raise ValueError(f"values must be finite, got {array[~np.isfinite(array)][0]}")
    count = len(array) // batch
    means = array[: count * batch].reshape(count, batch).mean(axis=1)
    # Sums over what remains after each cut, from the end. Centring first keeps the differences accurate.
    centred = (means - means[count // 2 :].mean())[::-1]
    left = np.arange(1, count + 1)
    squares = np.cumsum(centred**2) - np.cumsum(centred) ** 2 / left
    rest = max(5, math.ceil(MIN_REST * count))
    marginal = (squares / left**2)[::-1][: count - rest + 1]
    cut = int(np.argmin(np.maximum(marginal, 0.0)))
    return SteadyState(first=cut * batch, reached=cut <= count // 2)
