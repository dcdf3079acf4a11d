"""A rate that changes from the first request to the last: where does the server give way?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.workloads.arrivals.base import ArrivalKind, from_gaps
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Positive

_EQUAL = 1e-9
"""Rates closer than this share are one rate: the formulas divide by their difference."""


class RampArrivals(ArrivalKind):
    """The rate goes from ``from_rate`` to ``to_rate`` (requests per second), in either direction.

    N requests take the T seconds in which the rate adds up to N. The i-th is due when it has added up to i
    (``spacing: even``), or to the i-th arrival of a Poisson process of rate 1, rescaled to end at N (``poisson``).

    * ``linear``: ``T = 2 N / (from_rate + to_rate)``.
    * ``exponential``: ``T = N log(to_rate / from_rate) / (to_rate - from_rate)``.
    """

    kind: Literal["ramp"] = "ramp"
    from_rate: Positive
    to_rate: Positive
    shape: Literal["linear", "exponential"] = "linear"
    spacing: Literal["even", "poisson"] = "poisson"

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        count = len(requests)
        gaps = np.ones(count) if self.spacing == "even" else rng.exponential(size=count)
        return [self._when(passed, count) for passed in from_gaps(gaps, 1.0)]

    def _when(self, passed: float, count: int) -> float:
        """Seconds until the rate has added up to ``passed`` of ``count`` requests."""
        first, last = self.from_rate, self.to_rate
        if abs(last - first) <= _EQUAL * first:
            return passed / first
        if self.shape == "linear":
            # first t + slope t^2 / 2 = passed, with the slope (last^2 - first^2) / (2 count); this form of the root
            # does not cancel when the slope is small.
            slope = (last * last - first * first) / (2 * count)
            return 2 * passed / (first + math.sqrt(max(first * first + 2 * slope * passed, 0.0)))
        return math.log1p(passed / count * (last - first) / first) * count / (last - first)
