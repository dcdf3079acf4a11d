"""The valid points of a space: all of them where they can be listed, else a seeded sample."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.engines import KnobValue
from orchestrator.search.conditions import dependency_order, options

if TYPE_CHECKING:
    from orchestrator.search.knobs import Knob, Point, Space

MOST_LISTED: Final = 200_000
"""A space of no more points than this, valid or not, is listed."""

_MOST_STEPS_TO_LIST: Final = 50_000
"""A larger one is listed as well when rules and conditions leave so little that a walk over it takes no more steps."""
_DESCENTS: Final = 200
"""Random descents from which it is told whether that walk is worth a try."""

_MOST_STEPS: Final = 2_000_000
"""Values that a sample tries in all, a few seconds, before it is content with what it has found."""
_PATIENCE: Final = 2_000
"""Values that one descent tries before it begins again at the top: a bad choice there can cost ages below."""
_STALE_DRAWS: Final = 2_000
"""Draws in a row without a new valid point after which a sample begins to turn back at dead ends."""
_STALE: Final = 20
"""Descents in a row that found nothing new, for each point that is wanted, before a sample gives up."""
_FEW: Final = 10
"""A sample of fewer points than this looks as hard as one of so many."""


class Walk:
    """Gives the knobs values one after the other, and turns back as soon as a rule is broken.

    Args:
        tight_first: Knobs that a rule joins come next to each other, those of the shortest rules first, in place of the
            order of the space: what is wrong shows early, and turning back mends it soon.

    Attributes:
        steps: Values that were tried so far.
        is_cut: Whether the last walk ended before its end.
    """

    def __init__(self, space: Space, *, tight_first: bool = False) -> None:
        self._names = [knob.name for knob in space.knobs]
        self._order = dependency_order(_tight_first(space) if tight_first else space.knobs)
        self._start = dict(space.start)
        self._rules = space.rules
        position = {knob.name: index for index, knob in enumerate(self._order)}
        self._due: list[list[int]] = [[] for _ in self._order]
        self._is_hopeless = False
        for index, rule in enumerate(space.rules):
            last = max((position[name] for name in rule.reads if name in position), default=None)
            if last is not None:
                self._due[last].append(index)
            elif rule.broken(self._start) is not None:
                self._is_hopeless = True
        self.steps, self.is_cut = 0, False

    def points(
        self, rng: random.Random | None = None, *, dead_ends: int | None = None, most_steps: int | None = None
    ) -> Iterator[Point]:
        """Every valid point, in the order of the values, or with ``rng`` in a random one.

        Args:
            dead_ends: Stop after more values than this that led nowhere.
            most_steps: Stop when ``steps`` has come to this.
        """
        self.is_cut = False
        if self._is_hopeless:
            return
        order, values, chosen = self._order, dict(self._start), dict[str, KnobValue].fromkeys(self._names)
        stack = [iter(self._options(0, values, rng))]
        failed = 0
        while stack:
            if (dead_ends is not None and failed > dead_ends) or (most_steps is not None and self.steps >= most_steps):
                self.is_cut = True
                return
            depth = len(stack) - 1
            try:
                value = next(stack[-1])
            except StopIteration:
                stack.pop()
                failed += 1
                continue
            self.steps += 1
            name = order[depth].name
            chosen[name] = value
            values[name] = self._start.get(name) if value is None else value
            if any(self._rules[index].broken(values) is not None for index in self._due[depth]):
                failed += 1
            elif depth + 1 < len(order):
                stack.append(iter(self._options(depth + 1, values, rng)))
            else:
                yield dict(chosen)

    def expected_steps(self, rng: random.Random, descents: int) -> float:
        """Estimate of the steps of a whole walk: after D. E. Knuth (1975), a random descent stands at each level for
        as many steps as the product of the numbers of options up to there; the mean over descents is unbiased."""
        if self._is_hopeless:
            return 0.0
        total = 0.0
        for _ in range(descents):
            values, weight = dict(self._start), 1.0
            for depth, knob in enumerate(self._order):
                found = options(knob, values)
                weight *= len(found)
                total += weight
                if not found:
                    break
                value = found[rng.randrange(len(found))]
                values[knob.name] = self._start.get(knob.name) if value is None else value
                if any(self._rules[index].broken(values) is not None for index in self._due[depth]):
                    break
        return total / descents

    def _options(self, depth: int, values: dict[str, KnobValue], rng: random.Random | None) -> Iterable[KnobValue]:
        found = options(self._order[depth], values)
        return found if rng is None else _shuffled(found, rng)


def first_point(space: Space) -> tuple[Point | None, bool]:
    """Any valid point, and whether that there is none is certain: in a large space it is only as far as was tried."""
    walk = Walk(space, tight_first=True)
    # At random first: in order, the first values alone may be in the way of all others.
    point = next(walk.points(random.Random(0), dead_ends=_PATIENCE), None)
    if point is None and walk.is_cut:
        point = next(walk.points(most_steps=None if space.size <= MOST_LISTED else walk.steps + MOST_LISTED), None)
    if point is not None or not walk.is_cut:
        return point, True
    return next(iter(sample(space, 1, 0)), None), False


def listed(space: Space) -> list[Point] | None:
    """All valid points, in the order of the knobs and their values; None when there are too many to list."""
    walk, most_steps = Walk(space), None
    if space.size > MOST_LISTED:
        most_steps = _MOST_STEPS_TO_LIST
        if walk.expected_steps(random.Random(0), _DESCENTS) > 2 * most_steps:
            return None
    points = list(walk.points(most_steps=most_steps))
    return None if walk.is_cut else points


def sample(space: Space, limit: int, seed: int) -> list[Point]:
    """Up to ``limit`` distinct valid points, drawn knob by knob; the same for the same seed.

    At first a draw that breaks a rule is thrown away, so that no valid branch is favoured for its neighbours being
    invalid. Where that finds too few, a draw turns back and tries other values. Fewer points than ``limit`` are
    returned when nothing new turns up any more.
    """
    rng, walk = random.Random(f"points/{seed}"), Walk(space, tight_first=True)
    found: dict[tuple[str, ...], Point] = {}
    most_stale = _STALE * max(limit, _FEW)
    for dead_ends, most in ((0, min(most_stale, _STALE_DRAWS)), (_PATIENCE, most_stale)):
        stale = 0
        while len(found) < limit and stale < most and walk.steps < _MOST_STEPS:
            point = next(walk.points(rng, dead_ends=dead_ends, most_steps=_MOST_STEPS), None)
            before = len(found)
            if point is not None:
                found.setdefault(tuple(map(repr, point.values())), point)
            stale = 0 if len(found) > before else stale + 1
    return list(found.values())


def _tight_first(space: Space) -> list[Knob]:
    by_name = {knob.name: knob for knob in space.knobs}
    read = sorted(([name for name in by_name if name in rule.reads] for rule in space.rules), key=len)
    ordered = dict.fromkeys(name for names in read for name in names)
    return [by_name[name] for name in {**ordered, **by_name}]


def _shuffled(values: Sequence[KnobValue], rng: random.Random) -> Iterator[KnobValue]:
    """The values in a random order; the first of them costs the same however many there are."""
    if not values:
        return
    first = rng.randrange(len(values))
    yield values[first]
    rest = [*values[:first], *values[first + 1 :]]
    rng.shuffle(rest)
    yield from rest
