"""How much each knob, and each pair of knobs, moves the objective."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from orchestrator.analysis.points import MeasuredPoints
from orchestrator.measurement.distributions import f_tail, t_quantile

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

COLUMNS = ("trial", "point", "ratio")
"""What ``read_points`` has to read."""

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
    logs = np.log(frame["ratio"].to_numpy(dtype=float))
    table = _Groups(
        count=_summed(points.groups, np.ones(len(logs)), len(points.firsts)),
        total=_summed(points.groups, logs, len(points.firsts)),
        squares=float((logs**2).sum()),
        knobs={(name,): _Factor.of(points.firsts[name]) for name in points.varied},
    )
    names = list(table.knobs)
    whole = _fit(table, [])
    additive = _fit(table, names)
    mains = []
    for name in names:
        without = _fit(table, [other for other in names if other != name])
        mains.append(_effect(name, without, additive, whole.rest, table.trials, _levels(table, name, additive)))
    pairs = []
    for first, second in itertools.combinations(names, 2):
        full = _fit(table, [*names, (*first, *second)])
        pairs.append(_effect((*first, *second), additive, full, whole.rest, table.trials, ()))
    mains.sort(key=lambda effect: -effect.share)
    pairs.sort(key=lambda effect: -effect.share)
    return [*mains, *(effect for effect in pairs if effect.share > 0)]


Term: TypeAlias = tuple[str, ...]
"""Names of the knobs whose combined values are the levels of a factor; none for the constant."""


@dataclass(frozen=True)
class _Factor:
    """One level for each group, as whole numbers below ``len(names)``."""

    codes: Codes
    names: tuple[str, ...]

    @staticmethod
    def of(column: pd.Series[Any]) -> _Factor:
        values = column.tolist()
        texts = [repr(value) for value in values]
        level_of = dict(zip(texts, values, strict=True))
        order = sorted(level_of, key=lambda text: _in_order(level_of[text]))
        code_of = {text: code for code, text in enumerate(order)}
        codes = np.fromiter((code_of[text] for text in texts), dtype=np.int64, count=len(texts))
        return _Factor(codes, tuple("default" if level_of[text] is None else str(level_of[text]) for text in order))

    def times(self, other: _Factor) -> _Factor:
        """The combinations of both that occur."""
        codes, names = pd.factorize(self.codes * len(other.names) + other.codes)
        return _Factor(codes.astype(np.int64), tuple(map(str, names)))


@dataclass
class _Groups:
    """Trials by their point. Many fits are made over them, and what two of them share is counted once.

    Attributes:
        count: Trials of each group.
        total: Sum of their log ratios.
        squares: Sum of squares of all log ratios.
        knobs: The factors of the knobs that vary.
    """

    count: Floats
    total: Floats
    squares: float
    knobs: dict[Term, _Factor]

    def __post_init__(self) -> None:
        constant = _Factor(np.zeros(len(self.count), dtype=np.int64), ("",))
        self._factors: dict[Term, _Factor] = {(): constant, **self.knobs}
        self._cells: dict[tuple[Term, Term], Floats] = {}

    @property
    def trials(self) -> int:
        return int(self.count.sum())

    def factor(self, term: Term) -> _Factor:
        """The factor of a term of at most two knobs."""
        if term not in self._factors:
            self._factors[term] = self.knobs[term[:1]].times(self.knobs[term[1:]])
        return self._factors[term]

    def sums(self, term: Term, weights: Floats) -> Floats:
        """Sum of weights of the groups at each level."""
        factor = self.factor(term)
        return _summed(factor.codes, weights, len(factor.names))

    def cells(self, term: Term, other: Term) -> Floats:
        """Trials by the levels of two terms."""
        if (other, term) in self._cells:
            return self._cells[other, term].T
        if (term, other) not in self._cells:
            first, second = self.factor(term), self.factor(other)
            shape = len(first.names), len(second.names)
            codes = first.codes * shape[1] + second.codes
            self._cells[term, other] = _summed(codes, self.count, shape[0] * shape[1]).reshape(shape)
        return self._cells[term, other]


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


def _fit(table: _Groups, terms: Sequence[Term]) -> _Fit:
    # Counting is enough for the normal equations of one-hot columns; no column is ever written out.
    terms = [(), *terms]
    normal = np.block([[table.cells(term, other) for other in terms] for term in terms])
    right = np.concatenate([table.sums(term, table.total) for term in terms])
    inverse = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
    solution = inverse @ right
    rest = max(0.0, table.squares - float(solution @ right))
    return _Fit(solution, inverse, normal[0] / table.trials, rest, round(float(np.trace(inverse @ normal))))


def _effect(
    knobs: Term, without: _Fit, full: _Fit, total: float, trials: int, levels: tuple[LevelEffect, ...]
) -> Effect:
    explained, added, left = max(0.0, without.rest - full.rest), full.rank - without.rank, trials - full.rank
    p_value = None
    if added > 0 and left > 0 and full.rest > 1e-9 * total:
        p_value = f_tail(added, left, explained / added / (full.rest / left))
    # What is below this is rounding: the sums are differences of larger ones.
    share = explained / total if total > 0 and explained > 1e-9 * total else 0.0
    return Effect(knobs, share, added > 0, p_value, levels)


def _levels(table: _Groups, knob: Term, fit: _Fit) -> tuple[LevelEffect, ...]:
    """What the additive model gives at each value of a knob, averaged over the other knobs as the trials had them."""
    factor, left = table.knobs[knob], table.trials - fit.rank
    variance = fit.rest / left if left > 0 else math.inf
    before = itertools.takewhile(lambda name: name != knob, table.knobs)
    start = 1 + sum(len(table.knobs[name].names) for name in before)
    counts = table.sums(knob, table.count)
    found = []
    for level, name in enumerate(factor.names):
        row = fit.means.copy()
        row[start : start + len(factor.names)] = 0.0
        row[start + level] = 1.0
        mean, low, high = float(row @ fit.solution), 0.0, math.inf
        if left > 0:
            half = t_quantile(left, 0.975) * math.sqrt(variance * max(0.0, float(row @ fit.inverse @ row)))
            low, high = math.exp(mean - half), math.exp(mean + half)
        found.append(LevelEffect(name, int(counts[level]), math.exp(mean), low, high))
    return tuple(found)


def _summed(codes: Codes, weights: Floats, levels: int) -> Floats:
    """Sum of the weights of each code below ``levels``."""
    return np.bincount(codes, weights=weights, minlength=levels).astype(np.float64)


def _in_order(value: object) -> tuple[bool, float, str]:
    """Numbers by size, the others after them by name."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (not is_number, float(value) if is_number else 0.0, str(value))  # type: ignore[arg-type]
