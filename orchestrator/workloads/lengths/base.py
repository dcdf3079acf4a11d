"""What every distribution of lengths can do."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from orchestrator.workloads.sections import Section


class LengthKind(Section):
    """A distribution over whole numbers of tokens, 1 or more."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """No length is above this."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """``count`` independent lengths."""
