"""What a study has found so far, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.portfolio.features import Floats, Ints, Mask


@dataclass(frozen=True)
class History:
    """Trials that told something of their point, in the order of their numbers, and those that run.

    Attributes:
        tried: Shape (t,): the point of each finished trial, as a row.
        values: Shape (t, objectives): what was measured; NaN in the row of a trial that failed or broke a constraint.
        noise: Shape (t,): variance of a value's logarithm, as it was measured; 0 where it is not known.
        arms: Shape (t,): index of the arm that proposed it; -1 when it was none.
        minimise: Shape (objectives,): whether smaller is better.
        pending: Rows of the trials that run.
        asked: Rows of all trials, finished or not, in the order of their numbers.
    """

    tried: Ints
    values: Floats
    noise: Floats
    arms: NDArray[np.int8]
    minimise: Mask
    pending: Ints
    asked: Ints

    @cached_property
    def has_failed(self) -> Mask:
        """Shape (t,): which trials gave no values."""
        return np.asarray(np.isnan(self.values).any(axis=1), dtype=bool)

    @cached_property
    def rows(self) -> Ints:
        """Shape (n,): rows of the trials that gave values."""
        return self.tried[~self.has_failed]

    @cached_property
    def is_log(self) -> Mask:
        """Shape (objectives,): whether an objective is taken on the log scale: it was positive throughout."""
        return np.array([not (column <= 0).any() for column in self.values.T])

    @cached_property
    def losses(self) -> Floats:
        """Shape (n, objectives): smaller is better; logarithms where ``is_log``."""
        values = self.values[~self.has_failed]
        scaled = np.where(self.is_log, np.log(np.where(self.is_log, values, 1.0)), values)
        return np.where(self.minimise, scaled, -scaled)

    def noise_of(self, objective: int) -> Floats:
        """Shape (n,): variance of each loss; it is not known of one that is not on the log scale."""
        noise = self.noise[~self.has_failed]
        return noise if self.is_log[objective] else np.zeros_like(noise)

    @cached_property
    def front(self) -> Mask:
        """Shape (n,): which values no other dominates; of one objective, the best."""
        losses = self.losses
        if losses.shape[1] == 1:
            return np.asarray(losses[:, 0] == losses[:, 0].min(initial=np.inf), dtype=bool)
        kept = np.ones(len(losses), dtype=bool)
        for i, loss in enumerate(losses):
            if kept[i]:
                dominated = (losses >= loss).all(axis=1) & (losses > loss).any(axis=1)
                kept &= ~dominated
        return kept
