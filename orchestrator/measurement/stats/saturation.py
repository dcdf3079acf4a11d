"""Whether requests arrive faster than the engine serves them, seen while an open-loop load runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.measurement.distributions import t_quantile

CONFIDENCE = 0.9995
"""One-sided, for each look and each slope. A run has about a hundred overlapping looks."""
MIN_EXCESS = 0.1
"""Slopes below this are not called: a queue at 95 % of capacity wanders as steeply."""
MIN_POINTS = 12
MAX_POINTS = 60
POINT_S = 0.5
POINT_REQUESTS = 12
"""Arrivals between two points. At fewer, one long prompt looks like a growing queue."""


@dataclass(frozen=True)
class Saturation:
    """What the two slopes say.

    Attributes:
        over: Whether both grow for certain and by more than ``MIN_EXCESS``.
        ttft_slope: Growth of the TTFT in seconds per second. With a load ``rho`` times the capacity it tends to
            ``1 - 1 / rho``. NaN while there are too few points.
        in_flight_slope: Growth of the concurrency in requests per arriving request; tends to the same. NaN likewise.
        points: Points that the slopes rest on.
    """

    over: bool
    ttft_slope: float
    in_flight_slope: float
    points: int


def detect_saturation(send_s: ArrayLike, first_token_s: ArrayLike, end_s: ArrayLike, now_s: float) -> Saturation:
    """Judge an open-loop load from what is known of its requests at ``now_s``. Call it about once a second.

    The concurrency and the TTFT of the request whose turn it is (the waiting time so far of the oldest request without
    a first token, 0 if none waits) are read at points ``max(0.5 s, 12 arrivals)`` apart, the last 60 at most; 12 are
    needed. Over-saturated means that both rise (see ``rises``). In a stable system the concurrency also rises at first,
    while long generations pile up, and the TTFT does not.

    It needs a warm engine: compilation during the first requests is a queue like any other. A closed loop cannot be
    over-saturated, and an engine that hangs is a matter for time-outs.

    Args:
        send_s: Send times in seconds, at least 1, in any order. Requests sent after ``now_s`` are ignored.
        first_token_s: Time of each request's first token; NaN, or later than ``now_s``, if it has none yet.
        end_s: Time of each request's end, also of a failed one; NaN, or later than ``now_s``, while it is in flight.
        now_s: The time of the judgement on the same clock.

    Raises:
        ValueError: The lengths differ, ``send_s`` has nothing sent by ``now_s`` or is not finite, or ``now_s`` is not
            finite.
    """
    send, first, end = (np.asarray(times, dtype=float) for times in (send_s, first_token_s, end_s))
    if not len(send) == len(first) == len(end):
        raise ValueError(f"send_s, first_token_s and end_s differ in length: {len(send)}, {len(first)}, {len(end)}")
    if not np.isfinite(now_s):
        raise ValueError(f"now_s must be finite, got {now_s}")
    if not np.isfinite(send).all():
        raise ValueError("send_s must be finite")
    begun = send <= now_s
    if not begun.any():
        raise ValueError(f"send_s holds no request sent by now_s = {now_s}")
    start = float(send[begun].min())
    elapsed = now_s - start
    rate = np.count_nonzero(begun) / max(elapsed, POINT_S)
    step_s = max(POINT_S, POINT_REQUESTS / rate)
    points = min(int(elapsed / step_s) + 1, MAX_POINTS)
    if points < MIN_POINTS:
        return Saturation(False, float("nan"), float("nan"), points)

    grid = now_s - step_s * np.arange(points - 1, -1, -1)[:, None]
    sent = send <= grid
    in_flight = sent & ~(end <= grid)
    waiting = in_flight & ~(first <= grid)
    oldest = np.where(waiting, send, grid).min(axis=1)
    concurrency_up, concurrency_slope = rises(in_flight.sum(axis=1), step_s, scale=rate)
    ttft_up, ttft_slope = rises(grid[:, 0] - oldest, step_s)
    return Saturation(bool(concurrency_up & ttft_up), float(ttft_slope), float(concurrency_slope), points)


def rises(values: np.ndarray, step_s: float, *, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Whether series rise more steeply than a queue wanders.

    Least squares gives the slope. A queue is a random walk, whose residuals are so dependent that the usual error of a
    slope is far too small. For a random walk of ``n`` steps with standard deviation ``s`` the slope's variance per step
    is ``6 s^2 / (5 n)``; ``s`` is taken from the differences. Independent noise would have less, so this is safe.

    Source: Durlauf and Phillips, Trends versus random walks in time series analysis, Econometrica 56, 1988.

    Args:
        values: Evenly spaced values, shape (..., points), at least 4 points.
        step_s: Seconds between two points, above 0.
        scale: Divides the slope before it is compared with ``MIN_EXCESS``.

    Returns:
        Whether each series rises, and its slope per second divided by ``scale``; both of shape (...).
    """
    count = values.shape[-1]
    centred = np.arange(count) - (count - 1) / 2
    slope = values @ centred / (centred @ centred)
    walk = np.diff(values, axis=-1).std(axis=-1, ddof=1)
    error = walk * np.sqrt(6 / (5 * (count - 1)))
    relative = slope / step_s / scale
    return (relative >= MIN_EXCESS) & (slope > t_quantile(count - 2, CONFIDENCE) * error), relative
