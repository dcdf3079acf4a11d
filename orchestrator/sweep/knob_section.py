"""One knob of a spec: its scope, its values in one of several forms, and what it depends on."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from orchestrator.engines import KnobValue
from orchestrator.search import ExpressionError, Scope, parse

_DIGITS = 12
"""Significant digits of a value that was computed, so that 0.6 does not come out as 0.6000000000000001."""


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"should be a number, got {value!r}")
    return value


def checked_condition(text: str) -> str:
    """An expression as it was given. Raises ValueError with where it is wrong and what is allowed."""
    try:
        parse(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from error
    return text


Number = Annotated[int | float, BeforeValidator(_number)]


class KnobSection(BaseModel):
    """Values of one knob: a list, or a range from ``low`` to ``high``.

    Attributes:
        values: Numbers, texts, true, false or null; null is the value at engine start.
        step: Difference of two neighbours in a range; 1 if nothing else is said and both ends are whole.
        log2: Neighbours double.
        powers: Neighbours grow by this factor, at least 2.
        count: So many values, spread evenly; with ``log`` by an equal factor. They are whole where both ends are.
        multiple_of: A knob or an engine argument whose multiples alone are taken.
        when: An expression; where it does not hold the knob stays at its value at engine start.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    scope: Scope
    values: Annotated[list[KnobValue], Field(min_length=1)] | None = None
    low: Number | None = None
    high: Number | None = None
    step: Number | None = None
    log2: bool = False
    powers: Annotated[int, Field(ge=2)] | None = None
    count: Annotated[int, Field(ge=2)] | None = None
    log: bool = False
    multiple_of: str | None = None
    when: str | None = None

    @field_validator("when")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        return None if text is None else checked_condition(text)

    @model_validator(mode="after")
    def _one_form(self) -> KnobSection:
        rules = [name for name in ("step", "log2", "powers", "count") if getattr(self, name) not in (None, False)]
        if self.values is not None:
            if (self.low, self.high) != (None, None) or rules or self.log:
                raise ValueError("give either values, or low and high")
            if len(set(map(repr, self.values))) != len(self.values):
                raise ValueError("values holds one value twice")
            return self
        if self.low is None or self.high is None:
            raise ValueError("give either values, or low and high")
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if len(rules) > 1:
            raise ValueError(f"give either {' or '.join(rules)}")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"step must be above 0, got {self.step}")
        if not rules and not self._is_whole:
            raise ValueError("a range that is not of whole numbers needs step or count")
        if self._factor is not None and self.low < 1:
            raise ValueError(f"low must be at least 1 with {rules[0]}, got {self.low}")
        if self.log and (self.count is None or self.low <= 0):
            raise ValueError("log needs count, and low above 0")
        return self

    @property
    def _is_whole(self) -> bool:
        return all(isinstance(value, int) for value in (self.low, self.high, self.step or 1))

    @property
    def _factor(self) -> int | None:
        return 2 if self.log2 else self.powers

    def size(self) -> int:
        """How many values there are, at least about, without writing them out."""
        if self.values is not None:
            return len(self.values)
        if self._factor is not None or self.count is not None:
            return len(self.all_values())
        low, high = self._ends()
        return math.floor((high - low) / (self.step or 1) + 1e-9) + 1

    def all_values(self) -> tuple[KnobValue, ...]:
        """The values in their order, whatever ``multiple_of`` and ``when`` make of them."""
        if self.values is not None:
            return tuple(self.values)
        low, high = self._ends()
        if self._factor is not None:
            return _powers(low, high, self._factor)
        if self.count is not None:
            return self._spread(low, high, self.count)
        if self._is_whole:
            return tuple(range(int(low), int(high) + 1, int(self.step or 1)))
        assert self.step is not None
        return tuple(_rounded(low + index * self.step) for index in range(self.size()))

    def _ends(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def _spread(self, low: float, high: float, count: int) -> tuple[KnobValue, ...]:
        shares = [index / (count - 1) for index in range(count)]
        if self.log:
            values = [low * (high / low) ** share for share in shares]
        else:
            values = [low + (high - low) * share for share in shares]
        rounded = [round(value) if self._is_whole else _rounded(value) for value in values]
        return tuple(dict.fromkeys(rounded))


def _powers(low: float, high: float, factor: int) -> tuple[KnobValue, ...]:
    values, value = [], low
    while value <= high:
        values.append(value)
        value *= factor
    return tuple(values)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
