"""How much each knob, and each pair of knobs, moves the objective."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from orchestrator.analysis.points import MeasuredPoints

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

FEWEST = 4
"""Complete trials below which nothing is said."""


@dataclass(frozen=True)
class LevelEffect:
    """One value of a knob against the average of all its values.

    Attributes:
        value: The value as JSON writes it.
        trials: Trials that had it.
        ratio: Adjusted geometric mean of the ratios at this value: what the additive model gives there.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    value: str
    trials: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """A knob, or a pair of knobs beyond what both do alone.

    Attributes:
        knobs: One or two names.
        share: Share of the variance of the log ratio that only this term explains, 0 to 1.
        is_separable: Whether the trials can tell it from the other terms at all.
        p_value: Of the F test that it explains nothing; None without degrees of freedom left to tell.
        levels: Of a single knob, its values.
    """

    knobs: tuple[str, ...]
    share: float
    is_separable: bool
    p_value: float | None
    levels: tuple[LevelEffect, ...] = ()


def sensitivity(points: MeasuredPoints) -> list[Effect]:
    """Main effects of the knobs, then their pairs, the largest share first within each.

    An additive model of the log ratio with one level for each value of a knob, fitted by least squares. The share of a
    term is its type II sum of squares (all other terms of its order or below are in the model without it; Langsrud,
    2003, Statistics and Computing 13) over the total. The search did not draw its points at random, which type II sums
    correct for only as far as the model is right.

    Raises:
        ChunksmithError: Fewer than 4 complete trials.
    """
    frame = points.require(FEWEST).frame
    groups = frame.assign(log=np.log(frame["ratio"].to_numpy(dtype=float))).groupby("point", sort=False)
    firsts = frame.loc[groups.head(1).index]
    table = _Groups(
        count=np.asarray(groups.size(), dtype=np.float64),
        total=groups["log"].sum().to_numpy(dtype=float),
        squares=float((np.log(frame["ratio"].to_numpy(dtype=float)) ** 2).sum()),
    )
    factors = {name: _Factor.of(firsts[name]) for name in points.varied}
    whole = _fit(table, [])
    additive = _fit(table, list(factors.values()))
    mains = []
    for name in factors:
        without = _fit(table, [other for key, other in factors.items() if key != name])
        levels = _levels(table, factors, name, additive)
        mains.append(_effect((name,), without, additive, whole.rest, table.trials, levels))
    pairs = []
    for first, second in itertools.combinations(factors, 2):
        product = factors[first].times(factors[second])
        full = _fit(table, [*factors.values(), product])
        pairs.append(_effect((first, second), additive, full, whole.rest, table.trials, ()))
    mains.sort(key=lambda effect: -effect.share)
    pairs.sort(key=lambda effect: -effect.share)
    return [*mains, *(effect for effect in pairs if effect.share > 0)]


@dataclass(frozen=True)
class _Groups:
    """Trials by their point: how many, and the sum of their log ratios; the sum of squares of all log ratios."""

    count: Floats
    total: Floats
    squares: float

    @property
    def trials(self) -> int:
        return int(self.count.sum())


@dataclass(frozen=True)
class _Factor:
    """One level for each group, as whole numbers below ``len(names)``."""

    codes: Codes
    names: tuple[str, ...]

    @staticmethod
    def of(column: pd.Series[Any]) -> _Factor:
        levels = sorted({repr(value): value for value in column}.values(), key=_in_order)
        code_of = {repr(value): code for code, value in enumerate(levels)}
        codes = column.map(lambda value: code_of[repr(value)]).to_numpy(dtype=np.int64)
        return _Factor(codes, tuple("default" if value is None else str(value) for value in levels))

    def times(self, other: _Factor) -> _Factor:
        """The combinations of both that occur."""
        codes, names = pd.factorize(self.codes * len(other.names) + other.codes)
        return _Factor(codes.astype(np.int64), tuple(map(str, names)))


@dataclass(frozen=True)
class _Fit:
    """Least squares over one-hot columns of factors and a constant.

    Attributes:
        solution: Of least norm: the columns depend on each other.
        inverse: Pseudo-inverse of the normal matrix.
        means: Mean of each column over the trials.
        rest: Residual sum of squares.
        rank: Rank of the columns.
    """

    solution: Floats
    inverse: Floats
    means: Floats
    rest: float
    rank: int


def _fit(table: _Groups, factors: Sequence[_Factor]) -> _Fit:
    # Counting is enough for the normal equations of one-hot columns; no column is ever written out.
    blocks = [_Factor(np.zeros(len(table.count), dtype=np.int64), ("",)), *factors]
    rows = []
    for first in blocks:
        row = []
        for second in blocks:
            cells = np.bincount(
                first.codes * len(second.names) + second.codes,
                weights=table.count,
                minlength=len(first.names) * len(second.names),
            )
            row.append(cells.reshape(len(first.names), len(second.names)))
        rows.append(row)
    normal = np.block(rows)
    right = np.concatenate([np.bincount(one.codes, weights=table.total, minlength=len(one.names)) for one in blocks])
    inverse = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
    solution = inverse @ right
    rest = max(0.0, table.squares - float(solution @ right))
    return _Fit(solution, inverse, normal[0] / table.trials, rest, round(float(np.trace(inverse @ normal))))


def _effect(
    knobs: tuple[str, ...], without: _Fit, full: _Fit, total: float, trials: int, levels: tuple[LevelEffect, ...]
) -> Effect:
    explained, added, left = max(0.0, without.rest - full.rest), full.rank - without.rank, trials - full.rank
    p_value = None
    if added > 0 and left > 0 and full.rest > 1e-9 * total:
        p_value = float(f_distribution.sf(explained / added / (full.rest / left), added, left))
    # What is below this is rounding: the sums are differences of larger ones.
    share = explained / total if total > 0 and explained > 1e-9 * total else 0.0
    return Effect(knobs, share, added > 0, p_value, levels)


def _levels(table: _Groups, factors: dict[str, _Factor], knob: str, fit: _Fit) -> tuple[LevelEffect, ...]:
    """What the additive model gives at each value of a knob, averaged over the other knobs as the trials had them."""
    factor, left = factors[knob], table.trials - fit.rank
    variance = fit.rest / left if left > 0 else math.inf
    start = 1 + sum(len(factors[name].names) for name in itertools.takewhile(lambda name: name != knob, factors))
    counts = np.bincount(factor.codes, weights=table.count, minlength=len(factor.names))
    found = []
    for level, name in enumerate(factor.names):
        row = fit.means.copy()
        row[start : start + len(factor.names)] = 0.0
        row[start + level] = 1.0
        mean, low, high = float(row @ fit.solution), 0.0, math.inf
        if left > 0:
            half = float(t_distribution.ppf(0.975, left)) * math.sqrt(
                variance * max(0.0, float(row @ fit.inverse @ row))
            )
            low, high = math.exp(mean - half), math.exp(mean + half)
        found.append(LevelEffect(name, int(counts[level]), math.exp(mean), low, high))
    return tuple(found)


def _in_order(value: object) -> tuple[bool, float, str]:
    """Numbers by size, the others after them by name."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (not is_number, float(value) if is_number else 0.0, str(value))  # type: ignore[arg-type]
