"""Whether the baseline itself has moved during a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.measurement.distributions import t_quantile

MIN_BLOCKS = 6


@dataclass(frozen=True)
class Drift:
    """Change of the baseline from the first block to the last, as a ratio: 1.03 is 3 % up.

    Attributes:
        change: ``exp(slope * span)``, above 0.
        low: Lower end of its interval.
        high: Upper end of its interval.
        level: Confidence level, between 0 and 1.
        autocorrelation: Of neighbouring blocks after the trend is taken out, 0 to 0.95.
    """

    change: float
    low: float
    high: float
    level: float
    autocorrelation: float

    def exceeds(self, tolerance: float) -> bool:
        """Whether the whole interval lies beyond ``1 +- tolerance`` (a share, 0.05 is 5 %): the drift is proven."""
        return self.low > 1 + tolerance or self.high < 1 - tolerance

    def within(self, tolerance: float) -> bool:
        """Whether the whole interval lies inside ``1 +- tolerance``: its absence is proven. Both may be false."""
        return 1 - tolerance <= self.low and self.high <= 1 + tolerance


def baseline_drift(values: ArrayLike, times_s: ArrayLike, *, level: float = 0.95) -> Drift:
    """Trend of the baseline's blocks over time: a straight line through the logs, by least squares.

    Blocks resemble their neighbours, so the standard error is that of ``n_e = n (1 - r) / (1 + r)`` independent ones,
    with ``n_e - 2`` degrees of freedom. The lag-1 autocorrelation ``r`` of the residuals is corrected for its bias
    ``-(2 + 4 r) / n`` after a trend was fitted, and cut to 0 ... 0.95.

    Sources: Santer and others, Statistical significance of trends and trend differences in layer-average atmospheric
    temperature time series, JGR 105, 2000 (effective size); van Giersbergen, On the effect of deterministic terms on
    the bias in stable AR models, Economics Letters 89, 2005 (bias).

    Args:
        values: Metric of the baseline's blocks in time order, all above 0, at least 6, about evenly spaced.
        times_s: Start of each block in seconds, increasing.
        level: Confidence level, between 0 and 1.

    Raises:
        ValueError: The lengths differ, there are fewer than 6 blocks, ``values`` is not finite and above 0, ``times_s``
            does not increase, or ``level`` is out of range.
    """
    metric, times = np.asarray(values, dtype=float), np.asarray(times_s, dtype=float)
    count = len(metric)
    if len(times) != count:
        raise ValueError(f"times_s has {len(times)} entries for {count} values")
    if count < MIN_BLOCKS:
        raise ValueError(f"values must be at least {MIN_BLOCKS}, got {count}")
    if not (np.isfinite(metric) & (metric > 0)).all():
        raise ValueError("values must be finite numbers above 0")
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise ValueError("times_s must be finite and increase")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")

    logs = np.log(metric)
    centred = times - times.mean()
    slope = float(centred @ logs / (centred @ centred))
    residuals = logs - logs.mean() - slope * centred
    squares = float(residuals @ residuals)
    raw = float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0
    correlation = min(max((count * raw + 2) / (count - 4), 0.0), 0.95)
    effective = max(count * (1 - correlation) / (1 + correlation), 2.5)
    error = math.sqrt(squares / (effective - 2) / float(centred @ centred))
    half = t_quantile(effective - 2, (1 + level) / 2) * error
    span = float(times[-1] - times[0])
    change, low, high = (float(np.exp(np.minimum(span * s, 709.0))) for s in (slope, slope - half, slope + half))
    return Drift(change, low, high, level, correlation)
