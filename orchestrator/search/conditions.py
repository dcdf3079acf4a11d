"""Knobs that depend on others: the order in which they get their values, and what each may take then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.engines import KnobValue
from orchestrator.search.expressions import ExpressionError, Values
from orchestrator.search.rules import RuleError

if TYPE_CHECKING:
    from orchestrator.search.knobs import Knob


class CycleError(ValueError):
    """Knobs whose conditions or multiples depend on each other in a circle.

    Attributes:
        knobs: The circle, the first knob again at its end.
    """

    def __init__(self, knobs: Sequence[str]) -> None:
        super().__init__(" -> ".join(knobs))
        self.knobs = tuple(knobs)


def needs(knob: Knob) -> tuple[str, ...]:
    """Names that decide which values a knob may take."""
    multiple = () if knob.multiple_of is None else (knob.multiple_of,)
    return (*(knob.when.names if knob.when else ()), *multiple)


def dependency_order(knobs: Sequence[Knob]) -> list[Knob]:
    """The knobs, each after those that it depends on, and in their own order otherwise.

    Raises:
        CycleError: They depend on each other in a circle.
    """
    by_name = {knob.name: knob for knob in knobs}
    ordered: dict[str, Knob] = {}

    def place(knob: Knob, path: tuple[str, ...]) -> None:
        if knob.name in path:
            raise CycleError([*path[path.index(knob.name) :], knob.name])
        if knob.name in ordered:
            return
        for name in needs(knob):
            if name in by_name:
                place(by_name[name], (*path, knob.name))
        ordered[knob.name] = knob

    for knob in knobs:
        place(knob, ())
    return list(ordered.values())


def is_active(knob: Knob, values: Values) -> bool:
    """Whether a knob's condition holds, or it has none. A condition that is not decided does not hold.

    Raises:
        RuleError: The condition cannot be computed, or gives something else than true or false.
    """
    if knob.when is None:
        return True
    try:
        holds = knob.when.value(values)
    except ExpressionError as error:
        raise RuleError(f"space.{knob.name}.when: {error}") from error
    if holds is not None and not isinstance(holds, bool):
        raise RuleError(f"space.{knob.name}.when: {knob.when.text!r} gives {holds!r}; it must be a condition")
    return holds is True


def options(knob: Knob, values: Values) -> Sequence[KnobValue]:
    """What a knob may take beside the values of those that it depends on: None alone where its condition fails."""
    if not is_active(knob, values):
        return (None,)
    if knob.multiple_of is None:
        return knob.choices
    other = values.get(knob.multiple_of)
    return [value for value in knob.choices if is_multiple(value, other)]


def is_multiple(value: KnobValue, other: KnobValue) -> bool:
    """Whether a value is a multiple of another. What is left to the engine's start, on either side, is not judged."""
    if value is None or other is None:
        return True
    assert isinstance(value, int)
    return isinstance(other, int) and other != 0 and value % other == 0
