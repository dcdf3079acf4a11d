"""Points as numbers: what the models of the portfolio see of a finite list of points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = None | bool | int | float | str
"""One value of a knob."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

LOG_RATIO = 8.0
"""A knob of positive numbers is taken on a log scale from this ratio of its largest to its smallest value."""

MOST_LEVELS = 64
"""A knob with more numbers than this is a quantity: only the distance of two values counts, not that they differ."""


_NUMBER = "number"
_Key = tuple[str, Any]


@dataclass(frozen=True)
class Points:
    """A finite list of points with the same knobs, encoded.

    Attributes:
        names: The knobs, in a fixed order. K of them.
        levels: The values of each knob that occur: numbers ascending, then the others as they came.
        codes: Shape (N, K): index of a point's value among the knob's levels.
        coordinates: Shape (N, K), in [0, 1]: place of the value on its (log) scale; 0 for a knob without an order and
            0.5 for a value that is no number beside others that are.
        spans: Shape (K,): length of the knob's scale in octaves on a log scale, else the number of its steps.
        is_ordered: Shape (K,): the knob has at least three numbers.
        is_nominal: Shape (K,): it counts whether two values differ.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[Value, ...], ...]
    codes: Ints
    coordinates: Floats
    spans: Floats
    is_ordered: Mask
    is_nominal: Mask
    _code_of: tuple[dict[_Key, int], ...] = field(repr=False)
    _radix: tuple[int, ...] = field(repr=False)
    _row_of_key: dict[int, int] = field(repr=False)
    _code_of_value: dict[tuple[str, type, Value], int] = field(repr=False, compare=False, default_factory=dict)

    @property
    def size(self) -> int:
        """Number of points, N."""
        return len(self.codes)

    def point(self, row: int) -> dict[str, Value]:
        """The point in a row."""
        return {name: self.levels[k][self.codes[row, k]] for k, name in enumerate(self.names)}

    def row_of(self, point: Mapping[str, Any]) -> int | None:
        """The row of a point; None when it is not in the list."""
        key = 0
        for name, code_of, radix in zip(self.names, self._code_of, self._radix, strict=True):
            if name not in point:
                return None
            value = point[name]
            code = self._code_of_value.get((name, type(value), value))
            if code is None:
                code = code_of.get(_key(value))
                if code is None:
                    return None
                self._code_of_value[name, type(value), value] = code
            key += code * radix
        return self._row_of_key.get(key)

    def has(self, knob: int, value: Value) -> Mask:
        """Shape (N,): which points have a value of the knob at an index."""
        code = self._code_of[knob].get(_key(value))
        return np.zeros(self.size, dtype=bool) if code is None else self.codes[:, knob] == code

    def neighbours(self, row: int) -> Ints:
        """Rows that differ from a row in one knob, ascending."""
        own = self.codes[row].tolist()
        key = sum(code * radix for code, radix in zip(own, self._radix, strict=True))
        found = [
            self._row_of_key.get(key + (code - own[k]) * self._radix[k])
            for k, levels in enumerate(self.levels)
            for code in range(len(levels))
            if code != own[k]
        ]
        return np.array(sorted(one for one in found if one is not None), dtype=np.int32)

    @staticmethod
    def of(points: Sequence[Mapping[str, Value]]) -> Points:
        """Encode points.

        Raises:
            ValueError: There is none, they differ in their knobs, or one occurs twice.
        """
        if not points:
            raise ValueError("there is no point to choose from")
        names = tuple(points[0])
        for row, point in enumerate(points):
            if len(point) != len(names) or any(name not in point for name in names):
                raise ValueError(f"point {row} has the knobs {sorted(point)}, the first one {sorted(names)}")
        encoded = [_encode([point[name] for point in points]) for name in names]
        codes = np.ascontiguousarray(np.stack([one.codes for one in encoded], axis=1))
        counts = [len(one.levels) for one in encoded]
        # Mixed radix: one number for each row, of any size.
        radix = [math.prod(counts[k + 1 :]) for k in range(len(counts))]
        # As Python's integers where the product exceeds 64 bits.
        kind = np.int64 if math.prod(counts) < 2**62 else object
        keys = (codes.astype(kind) @ np.array(radix, dtype=kind)).tolist()
        row_of_key = {key: row for row, key in enumerate(keys)}
        if len(row_of_key) != len(points):
            twice = next(row for row, key in enumerate(keys) if row_of_key[key] != row)
            raise ValueError(f"a point occurs twice: {dict(points[twice])}")
        is_ordered = np.array([one.is_ordered for one in encoded])
        return Points(
            names=names,
            levels=tuple(one.levels for one in encoded),
            codes=codes,
            coordinates=np.ascontiguousarray(np.stack([one.coordinates for one in encoded], axis=1)),
            spans=np.array([one.span for one in encoded]),
            is_ordered=is_ordered,
            is_nominal=(np.array(counts) > 1) & ~(is_ordered & (np.array(counts) > MOST_LEVELS)),
            _code_of=tuple(one.code_of for one in encoded),
            _radix=tuple(radix),
            _row_of_key=row_of_key,
        )


@dataclass(frozen=True)
class _Column:
    levels: tuple[Value, ...]
    codes: Ints
    code_of: dict[_Key, int]
    coordinates: Floats
    span: float
    is_ordered: bool


def _encode(column: Sequence[Value]) -> _Column:
    # A key is made once for each value that occurs, and not for each point.
    typed = list(zip(map(type, column), column, strict=True))
    key_of = {one: _key(one[1]) for one in dict.fromkeys(typed)}
    keys = [key_of[one] for one in typed]
    distinct = dict(zip(keys, column, strict=True))
    numbers = sorted(key[1] for key in distinct if key[0] == _NUMBER)
    order: list[_Key] = [(_NUMBER, number) for number in numbers] + [key for key in distinct if key[0] != _NUMBER]
    code_of = {key: code for code, key in enumerate(order)}
    codes = np.array([code_of[key] for key in keys], dtype=np.int32)
    is_ordered = len(numbers) >= 3 and numbers[0] < numbers[-1]
    place, span = np.zeros(len(order)), 0.0
    if is_ordered:
        is_log = numbers[0] > 0 and numbers[-1] / numbers[0] >= LOG_RATIO
        scale = np.log2(numbers) if is_log else np.array(numbers)
        place[:] = 0.5
        place[: len(numbers)] = (scale - scale[0]) / (scale[-1] - scale[0])
        span = float(scale[-1] - scale[0]) if is_log else float(len(numbers) - 1)
    return _Column(tuple(distinct[key] for key in order), codes, code_of, place[codes], span, is_ordered)


def _key(value: Any) -> _Key:
    """Equal for values that are the same: 1 and 1.0 are, 1 and True are not."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (_NUMBER, float(value))
    return (type(value).__name__, value)
