"""Many short requests and a long tail, as chat traffic has them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from orchestrator.workloads.lengths.bounded import BoundedLength
from orchestrator.workloads.sections import Count, Positive

_NORMAL = NormalDist()


class LognormalLength(BoundedLength):
    """``exp(log(median) + sigma z)`` with a normal ``z``, given that it lies from ``low`` to ``high``.

    The bounds cut the tails off by the inverse of the distribution. Moving what lies outside onto the bounds would heap
    up requests there. ``median`` is that of the distribution without bounds, and lies between them.
    """

    kind: Literal["lognormal"] = "lognormal"
    median: Count
    sigma: Positive

    @model_validator(mode="after")
    def _median_inside(self) -> Self:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"median {self.median} is not between low {self.low} and high {self.high}")
        return self

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        low, high = self._quantile(self.low - 0.5), self._quantile(self.high + 0.5)
        return [self._length(share) for share in rng.uniform(low, high, size=count).tolist()]

    def _quantile(self, tokens: float) -> float:
        return _NORMAL.cdf((math.log(tokens) - math.log(self.median)) / self.sigma)

    def _length(self, share: float) -> int:
        # A share of exactly 0 or 1, where a bound lies far out in the tail, has no inverse.
        if share <= 0.0 or share >= 1.0:
            return self.low if share <= 0.0 else self.high
        exponent = math.log(self.median) + self.sigma * _NORMAL.inv_cdf(share)
        # Rounding at the last bit must not leave the bounds.
        return min(max(round(math.exp(exponent)), self.low), self.high)
