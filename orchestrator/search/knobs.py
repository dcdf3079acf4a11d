"""Knobs, points and spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from orchestrator.engines import KnobValue
from orchestrator.search.conditions import is_active, is_multiple
from orchestrator.search.enumerate import listed, sample
from orchestrator.search.expressions import Expression
from orchestrator.search.rules import Rule

Scope = Literal["live", "engine", "load"]
"""What a new value costs: ``live`` a millisecond in the running engine, ``engine`` a new engine, ``load`` nothing: it
belongs to one measurement."""

Point = Mapping[str, KnobValue]
"""One value for each knob of a space; None is the value at engine start, or that of the spec's workload and load."""

_MOST_FOR_GROUPS = 2_000
"""Points from which the groups of a space are told that has too many points to list."""


@dataclass(frozen=True)
class Knob:
    """A knob of a space.

    Attributes:
        values: All that it can take, in their natural order. None is among them where it has a condition.
        when: It takes None where this does not hold, so that all points that differ only in what has no effect are
            one. None: it always has an effect.
        multiple_of: A knob or an engine argument whose multiples alone it takes.
        rests: Whether None may be chosen while the condition holds.
    """

    name: str
    scope: Scope
    values: tuple[KnobValue, ...]
    when: Expression | None = None
    multiple_of: str | None = None
    rests: bool = True

    @cached_property
    def choices(self) -> tuple[KnobValue, ...]:
        """What it can take where its condition holds."""
        return self.values if self.rests else tuple(value for value in self.values if value is not None)


@dataclass(frozen=True)
class Space:
    """A finite space of points, and what rules points out.

    Attributes:
        rules: What a valid point keeps.
        start: Values at engine start, by the names that rules and conditions use: they stand in for a knob's None, and
            for what is no knob. What is left to vLLM is not in it.
    """

    knobs: tuple[Knob, ...]
    rules: tuple[Rule, ...] = ()
    start: Mapping[str, KnobValue] = field(default_factory=dict, hash=False)

    @property
    def size(self) -> int:
        """Number of points, valid or not, were all knobs independent of each other."""
        product = 1
        for knob in self.knobs:
            product *= len(knob.choices)
        return product

    def names(self, scope: Scope) -> list[str]:
        """Knobs of one scope, in the order of the space."""
        return [knob.name for knob in self.knobs if knob.scope == scope]

    def values_at(self, point: Point) -> dict[str, KnobValue]:
        """What rules and conditions read: the point, and the value at engine start where it has none."""
        return {**self.start, **{name: value for name, value in point.items() if value is not None}}

    def violated(self, point: Point) -> str | None:
        """The first rule that a point breaks, as one line; None when it breaks none.

        A point that gives a value to a knob whose condition fails breaks one, too. Whether the values are among the
        knobs' own is not asked, and a knob that the point leaves out is at its value at engine start.

        Raises:
            RuleError: A rule cannot be computed with these values.
        """
        values = self.values_at(point)
        for knob in self.knobs:
            value = point.get(knob.name)
            if value is None:
                continue
            if not is_active(knob, values):
                assert knob.when is not None
                return f"{knob.name}: {value!r} has no effect: {knob.when.text} does not hold"
            if knob.multiple_of is not None and not is_multiple(value, values.get(knob.multiple_of)):
                return f"{knob.name}: {value!r} is no multiple of {knob.multiple_of}, {values[knob.multiple_of]!r}"
        for rule in self.rules:
            if (reason := rule.broken(values)) is not None:
                return f"{rule.name}: {reason}"
        return None

    @cached_property
    def all_points(self) -> list[Point] | None:
        """Every valid canonical point in a fixed order, that of the knobs and their values; None when the space is too
        large to list.

        Raises:
            RuleError: A rule or a condition cannot be computed.
            CycleError: Conditions or multiples depend on each other in a circle.
        """
        return listed(self)

    def valid_points(self, limit: int, *, seed: int) -> list[Point]:
        """All valid canonical points in a fixed order where they can be listed, else a sample of distinct ones.

        Args:
            limit: Most points of a sample. It may come out smaller when valid points are very rare.
            seed: Of the sample.

        Raises:
            RuleError: A rule or a condition cannot be computed.
            CycleError: Conditions or multiples depend on each other in a circle.
        """
        points = self.all_points
        return sample(self, limit, seed) if points is None else list(points)

    def groups(self) -> list[Point]:
        """The combinations of engine-scope values of valid points; one empty point when there is no such knob.

        Of a space that is too large to list, those of a sample.
        """
        return list(self._groups)

    @cached_property
    def _groups(self) -> list[Point]:
        names = self.names("engine")
        if not names:
            return [{}]
        found = {}
        for point in self.valid_points(_MOST_FOR_GROUPS, seed=0):
            group = {name: point[name] for name in names}
            found[tuple(map(repr, group.values()))] = group
        return list(found.values())
