"""What the models look at: some of the measured points, and some of the points that may be proposed.

Both stay the same for a few trials, so that a Gaussian process need not be made anew for each; and both are functions
of what was measured and the seed alone, so that a study that is resumed sees what an undisturbed one sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.search.portfolio.features import Floats, Ints, Points
from orchestrator.search.portfolio.history import History

MOST_CANDIDATES = 5000
"""A longer list of points is not scored whole."""
_SAMPLE = 2500
"""So many points of a longer list are scored, and the neighbours of the best ones."""
_CENTRES = 4
_BEST, _LATEST = 128, 64
"""Measured points that the models see once there are more of them than these two together."""
_LONGEST_STEP = 32


@dataclass(frozen=True)
class Frame:
    """What is fixed for a few trials.

    Attributes:
        count: Measured points when it was made.
        basis: Indices of those that the models see.
        candidates: Rows of the points that are scored.
    """

    count: int
    basis: Ints
    candidates: Ints

    def seen(self, measured: int) -> Ints:
        """Indices of the measured points that the models see: the basis, then what came since."""
        return np.concatenate([self.basis, np.arange(self.count, measured, dtype=np.int32)])


def checkpoint(measured: int) -> int:
    """How many measured points the frame of a study is made from that has so many: at most a tenth less."""
    return measured - measured % min(max(1, measured // 10), _LONGEST_STEP)


class Framer:
    """Makes the frame of a history, or hands out the last one again."""

    def __init__(self, points: Points, seed: int) -> None:
        self._points, self._seed = points, seed
        self._made_of: tuple[Ints, Floats] | None = None
        self._frame: Frame | None = None

    def frame(self, history: History) -> Frame:
        """The frame of a history of at least one measured point."""
        count = checkpoint(len(history.rows))
        rows, losses = history.rows[:count], history.losses[:count]
        if self._frame is None or self._made_of is None or not _equal(self._made_of, (rows, losses)):
            rank = np.argsort(np.argsort(losses, axis=0, kind="stable"), axis=0, kind="stable").min(axis=1)
            order = np.argsort(rank, kind="stable").astype(np.int32)
            self._frame = Frame(count, _basis(order), self._candidates(rows[order[:_CENTRES]], count))
            self._made_of = (rows, losses)
        return self._frame

    def sample(self, rng: np.random.Generator) -> Ints:
        """All rows, or some of many."""
        size = self._points.size
        if size <= MOST_CANDIDATES:
            return np.arange(size, dtype=np.int32)
        return np.sort(rng.choice(size, _SAMPLE, replace=False)).astype(np.int32)

    def _candidates(self, centres: Ints, count: int) -> Ints:
        sample = self.sample(np.random.default_rng([self._seed, count, 1]))
        if len(sample) == self._points.size:
            return sample
        near = [self._points.neighbours(int(row)) for row in centres]
        return np.unique(np.concatenate([sample, *near]))


def _basis(order: Ints) -> Ints:
    count = len(order)
    if count <= _BEST + _LATEST:
        return np.arange(count, dtype=np.int32)
    latest = np.arange(count - _LATEST, count, dtype=np.int32)
    return np.union1d(order[:_BEST], latest).astype(np.int32)


def _equal(one: tuple[Ints, Floats], other: tuple[Ints, Floats]) -> bool:
    return np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
