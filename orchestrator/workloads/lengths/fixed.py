"""One length for all requests."""

from __future__ import annotations

from typing import Literal

import numpy as np

from orchestrator.workloads.lengths.base import LengthKind
from orchestrator.workloads.sections import Count


class FixedLength(LengthKind):
    """Every request has ``tokens``."""

    kind: Literal["fixed"] = "fixed"
    tokens: Count

    @property
    def longest(self) -> int:
        return self.tokens

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        return [self.tokens] * count
