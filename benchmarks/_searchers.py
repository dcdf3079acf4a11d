"""Searches of a tuning table by the sampler and its rivals, each asked for a row and told what it is worth."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from benchmarks._landscapes import hidden_rule
from benchmarks._t4 import TuningTable
from orchestrator.search.portfolio import PortfolioSampler
from orchestrator.search.portfolio.acquisition import log_expected_improvement
from orchestrator.search.portfolio.failures import FailureModel
from orchestrator.search.portfolio.features import Points
from orchestrator.search.portfolio.forest import evaluate, grow

Columns = NDArray[np.float32]
Key = tuple[str, str, str, int]

CONDITIONS = ("clean", "noise", "failing")
EVALUATIONS = 100
NOISE, FAILING = 0.05, 0.30


class Searcher(Protocol):
    """Proposes rows one by one."""

    def ask(self) -> int:
        """The next row."""

    def tell(self, row: int, value: float | None) -> None:
        """What it is worth, smaller is better; None when it failed."""


class OptunaSearcher:
    """A sampler of Optuna that knows no list of points: its suggestion is moved to the nearest untried row.

    An ordered knob is suggested by the index of its level, any other as a category. Values are told as logarithms.
    """

    def __init__(self, points: Points, sampler: BaseSampler) -> None:
        self._points, self._tried = points, np.zeros(points.size, dtype=bool)
        self._space: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(levels) - 1) if points.is_ordered[k] else CategoricalDistribution(levels)
            for k, (name, levels) in enumerate(zip(points.names, points.levels, strict=True))
        }
        self._study = optuna.create_study(sampler=sampler)

    def ask(self) -> int:
        self._trial = self._study.ask(self._space)
        distance = np.zeros(self._points.size)
        for k, name in enumerate(self._points.names):
            levels, codes = self._points.levels[k], self._points.codes[:, k]
            value: Any = self._trial.params[name]
            if self._points.is_ordered[k]:
                distance += (codes - value) ** 2 / (len(levels) - 1) ** 2
            else:
                distance += codes != levels.index(value)
        row = int(np.argmin(np.where(self._tried, np.inf, distance)))
        self._tried[row] = True
        return row

    def tell(self, row: int, value: float | None) -> None:
        if value is None:
            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, float(np.log(value)))


class PortfolioSearcher:
    """The sampler in question, as a user of Optuna meets it."""

    def __init__(self, points: Points, seed: int) -> None:
        self._points = points
        sampler = PortfolioSampler([points.point(row) for row in range(points.size)], seed=seed)
        self._space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(levels) for name, levels in zip(points.names, points.levels, strict=True)
        }
        self._study = optuna.create_study(sampler=sampler)

    def ask(self) -> int:
        self._trial = self._study.ask(self._space)
        row = self._points.row_of(self._trial.params)
        assert row is not None
        return row

    def tell(self, row: int, value: float | None) -> None:
        if value is None:
            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, value)


class RandomSearcher:
    """Rows without replacement."""

    def __init__(self, points: Points, seed: int) -> None:
        self._order = iter(np.random.default_rng(seed).permutation(points.size))

    def ask(self) -> int:
        return int(next(self._order))

    def tell(self, row: int, value: float | None) -> None:
        pass


class LocalSearcher:
    """Iterated local search: from the best of five random rows to the first neighbour that is better; when none is
    left, on from a random untried row at Hamming distance two or three. Neighbours on adjacent levels come first."""

    def __init__(self, points: Points, seed: int) -> None:
        self._codes, self._rng = points.codes, np.random.default_rng(seed)
        self._tried = np.zeros(points.size, dtype=bool)
        self._first: list[tuple[float, int]] = []
        self._centre, self._value = -1, float("inf")
        self._has_jumped = False

    def ask(self) -> int:
        if len(self._first) < 5:
            return self._take(np.flatnonzero(~self._tried))
        if self._centre < 0:
            self._value, self._centre = min(self._first)
        differs = self._codes != self._codes[self._centre]
        distance = np.where(self._tried, -1, differs.sum(axis=1))
        near = np.flatnonzero(distance == 1)
        if len(near):
            steps = np.abs(self._codes[near] - self._codes[self._centre]).sum(axis=1)
            return self._take(near[steps == steps.min()])
        self._has_jumped = True
        far = np.flatnonzero((distance == 2) | (distance == 3))
        return self._take(far if len(far) else np.flatnonzero(~self._tried))

    def tell(self, row: int, value: float | None) -> None:
        worth = float("inf") if value is None else value
        if len(self._first) < 5:
            self._first.append((worth, row))
        elif value is not None and (worth < self._value or self._has_jumped):
            self._centre, self._value = row, worth
            self._has_jumped = False

    def _take(self, rows: NDArray[np.intp]) -> int:
        row = int(self._rng.choice(rows))
        self._tried[row] = True
        return row


class ForestSearcher:
    """Expected improvement by 60 extra-trees that try every column; the first eight rows are far from each other.

    The model of failures is ours: a plain one would make the rival worse.
    """

    def __init__(self, points: Points, seed: int) -> None:
        self._points, self._rng = points, np.random.default_rng(seed)
        self._failures = FailureModel(points)
        columns = [points.coordinates[:, k] for k in np.flatnonzero(points.is_ordered)]
        for k in np.flatnonzero(points.is_nominal):
            columns += [points.codes[:, k] == level for level in range(len(points.levels[k]))]
        self._columns: Columns = np.ascontiguousarray(np.stack(columns), dtype=np.float32)
        self._by_row: Columns = np.ascontiguousarray(self._columns.T)
        self._nearest = np.full(points.size, np.inf)
        self._rows: list[int] = []
        self._values: list[float] = []
        self._tried: list[int] = []
        self._failed: list[float] = []

    def ask(self) -> int:
        everything = np.arange(self._points.size, dtype=np.int32)
        tried = np.array(self._tried, dtype=np.int32)
        if len(self._rows) < 8:
            score = self._nearest + self._rng.random(self._points.size) * 1e-6
            score = self._rng.random(self._points.size) if len(tried) == 0 else score
        else:
            y = np.log(self._values)
            y = (y - y.mean()) / (y.std() or 1.0)
            x = np.ascontiguousarray(self._columns[:, self._rows])
            trees = grow(x, y, 60, len(x), len(x), 0, int(self._rng.integers(2**32)))
            mean, sd = evaluate(self._by_row, *trees)
            failing = self._failures.probability(tried, np.array(self._failed), everything)
            score = log_expected_improvement(mean, sd, float(y.min())) + np.log(np.maximum(1.0 - failing, 1e-3))
        score[tried] = -np.inf
        return int(np.argmax(score))

    def tell(self, row: int, value: float | None) -> None:
        self._tried.append(row)
        self._failed.append(float(value is None))
        gap = (self._points.coordinates - self._points.coordinates[row]) ** 2 * self._points.is_ordered
        differs = self._points.codes != self._points.codes[row]
        self._nearest = np.minimum(self._nearest, np.sqrt(gap.sum(axis=1) + differs.sum(axis=1)))
        if value is not None:
            self._rows.append(row)
            self._values.append(value)


Make = Callable[[Points, int], Searcher]


def _optuna(make: Callable[[int], BaseSampler]) -> Make:
    def searcher(points: Points, seed: int) -> Searcher:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return OptunaSearcher(points, make(seed))

    return searcher


SEARCHERS: dict[str, Make] = {
    "portfolio": PortfolioSearcher,
    "tpe": _optuna(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "gp": _optuna(lambda seed: optuna.samplers.GPSampler(seed=seed)),
    "nsga2": _optuna(lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20)),
    "random": RandomSearcher,
    "ils": LocalSearcher,
    "forest": ForestSearcher,
}


@dataclass(frozen=True)
class Search:
    """One search of one table.

    Attributes:
        gaps: After each evaluation, the gap of the row that was best as observed; None before one gave a value.
        failed: A character for each evaluation: 1 where it failed.
    """

    table: str
    condition: str
    method: str
    seed: int
    gaps: list[float | None]
    failed: str

    @property
    def key(self) -> Key:
        """What is not done twice."""
        return (self.table, self.condition, self.method, self.seed)


def search(table: TuningTable, condition: str, method: str, seed: int) -> Search:
    """Let one method search a table."""
    rng = np.random.default_rng([seed, CONDITIONS.index(condition)])
    times = table.times
    if condition == "failing":
        times = np.where(hidden_rule(table.points, FAILING, rng), np.inf, times)
    observed = times * np.exp(NOISE * rng.standard_normal(len(times))) if condition == "noise" else times
    searcher = SEARCHERS[method](Points.of(table.points), seed)
    best, best_row = float("inf"), -1
    gaps: list[float | None] = []
    failed = ""
    for _ in range(EVALUATIONS):
        row = searcher.ask()
        value = float(observed[row])
        fails = not np.isfinite(value)
        searcher.tell(row, None if fails else value)
        if value < best:
            best, best_row = value, row
        failed += str(int(fails))
        gaps.append(round(float(times[best_row] / times.min() - 1.0), 6) if best_row >= 0 else None)
    return Search(table.name, condition, method, seed, gaps, failed)
