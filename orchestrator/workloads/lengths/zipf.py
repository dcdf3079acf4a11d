"""Short requests by far the most frequent, with a power law for the rest."""

from __future__ import annotations

from typing import Literal

import numpy as np

from orchestrator.workloads.lengths.bounded import BoundedLength
from orchestrator.workloads.sections import Positive


class ZipfLength(BoundedLength):
    """The k-th length from ``low`` up (k = 1, 2, ...) has a probability in proportion to ``k ** -alpha``.

    The support ends at ``high``, so that any ``alpha`` above 0 will do, also those up to 1 for which the endless sum
    has no limit.
    """

    kind: Literal["zipf"] = "zipf"
    alpha: Positive

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        weights = np.cumsum(np.arange(1, self.high - self.low + 2, dtype=float) ** -self.alpha)
        ranks = np.searchsorted(weights, rng.random(count) * weights[-1], side="right")
        lengths: list[int] = (self.low + ranks).tolist()
        return lengths
