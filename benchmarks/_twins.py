"""Pairs of made-up tables: what an earlier run searched, and what is searched now."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks._landscapes import Point, draw, generators, landscape
from benchmarks._t4 import TuningTable
from orchestrator.search.portfolio.features import Points

Floats = NDArray[np.float64]

MISLEADING = ("unrelated", "inverted", "decoy")
_RELATED = 0.7
"""Rank correlation of two tables, over all rows, from which one is held to be of use for the other."""


@dataclass(frozen=True)
class Pair:
    """What is searched, and what was searched before, over some of the same knobs.

    Attributes:
        name: How the source came about.
    """

    name: str
    target: TuningTable
    source: TuningTable

    @functools.cached_property
    def correlation(self) -> float:
        """Spearman's, over the configurations that both have and that fail in neither."""
        names = [name for name in self.target.points[0] if name in self.source.points[0]]
        known = {
            tuple(point[name] for name in names): time
            for point, time in zip(self.source.points, self.source.times, strict=True)
        }
        there = np.array([known.get(tuple(point[name] for name in names), np.inf) for point in self.target.points])
        both = np.isfinite(self.target.times) & np.isfinite(there)
        return float(spearmanr(self.target.times[both], there[both]).statistic)

    @property
    def is_related(self) -> bool:
        """Whether the source should help: told before any search. A decoy is made to mislead, however it correlates."""
        return self.name not in MISLEADING and self.correlation >= _RELATED


def twins(kind: str, seed: int, share: float) -> Pair:
    """A made-up table, and one of the same make whose numbers were drawn a little apart: a kernel on another GPU.

    Args:
        share: How far apart, from 0 (the same) to 1 (drawn anew). What is chosen, not measured, stays the same.
    """
    points, times = landscape(kind, seed)
    same = (np.array_equal(draw(kind, rng)[2], times) for rng in generators(kind, seed))
    attempt = next(number for number, is_same in enumerate(same) if is_same)
    again = next(itertools.islice(generators(kind, seed), attempt, None))
    near = _Near(again, np.random.default_rng([seed, attempt]), share)
    names, rows, earlier = draw(kind, cast("np.random.Generator", near))
    # A bound on a product of knobs may have moved, too.
    there: list[Point] = [dict(zip(names, map(int, row), strict=True)) for row in rows]
    name = f"{kind}_{seed}"
    return Pair("twin", TuningTable(name, points, times), TuningTable(f"{name} twin", there, earlier))


def misleading(kind: str, target: TuningTable, seed: int) -> Pair:
    """A source that knows nothing of a target (``unrelated``), the contrary (``inverted``), or what is bad but not what
    is good (``decoy``: the best tenth is among the slow)."""
    loss = np.log(target.times)
    spread, rank = float(loss.std()), np.argsort(np.argsort(loss)) / len(loss)
    other = spread * _other(Points.of(target.points).codes, np.random.default_rng([seed, MISLEADING.index(kind)]))
    if kind == "inverted":
        found = -loss
    elif kind == "unrelated":
        found = other
    else:
        found = np.where(rank < 0.1, float(np.quantile(loss, 0.6)) + 0.3 * other, loss)
    return Pair(kind, target, TuningTable(f"{target.name} {kind}", target.points, np.exp(found)))


def _other(codes: NDArray[np.int32], rng: np.random.Generator) -> Floats:
    """A random function of the knobs: main effects, half of the effects of two, and roughness, standardised."""
    total = np.zeros(len(codes))
    for count, share, weight in ((1, 1.0, 1.0), (2, 0.5, 0.7)):
        for knobs in itertools.combinations(range(codes.shape[1]), count):
            if rng.random() <= share:
                table = rng.standard_normal([int(codes[:, k].max()) + 1 for k in knobs])
                total += weight * rng.gamma(1.0) * table[tuple(codes[:, k] for k in knobs)]
    total += 0.15 * total.std() * rng.standard_normal(len(codes))
    return np.asarray((total - total.mean()) / total.std())


class _Near:
    """Draws what a generator draws, moved towards what another one does; whole numbers and choices stay."""

    def __init__(self, own: np.random.Generator, other: np.random.Generator, share: float) -> None:
        self._own, self._other, self._share = own, other, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def uniform(self, low: float, high: float) -> float:
        mixed = (1.0 - self._share) * self._own.random() + self._share * self._other.random()
        return low + (high - low) * mixed

    def standard_normal(self, size: Any = None) -> Any:
        own, other = self._own.standard_normal(size), self._other.standard_normal(size)
        return np.sqrt(1.0 - self._share**2) * own + self._share * other

    def normal(self, mean: float, sd: float) -> float:
        return float(mean + sd * self.standard_normal())

    def gamma(self, shape: float) -> float:
        return float(self._own.gamma(shape) * np.exp(self._share * self._other.standard_normal()))
