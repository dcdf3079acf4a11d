"""Every length between two bounds is as likely as any other."""

from __future__ import annotations

from typing import Literal

import numpy as np

from orchestrator.workloads.lengths.bounded import BoundedLength


class UniformLength(BoundedLength):
    """Drawn evenly from ``low`` to ``high``."""

    kind: Literal["uniform"] = "uniform"

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        lengths: list[int] = rng.integers(self.low, self.high, size=count, endpoint=True).tolist()
        return lengths
