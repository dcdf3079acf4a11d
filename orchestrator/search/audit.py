"""How large a space is, what each rule takes from it, and which rules leave nothing."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.search.conditions import dependency_order, options
from orchestrator.search.enumerate import Walk, first_point
from orchestrator.search.knobs import Point, Space
from orchestrator.search.rules import Rule

MOST_COUNTED: Final = 50_000
"""Points that are counted one by one; more are estimated."""

DRAWS: Final = 5_000


@dataclass(frozen=True)
class Removal:
    """What one rule takes away.

    Attributes:
        share: Of all distinct points, valid or not, those that break it.
        alone: Of all distinct points, those that break it and no other.
        unknown: Names that it reads and that are left to vLLM at every point; where they decide, it is not judged.
    """

    name: str
    text: str
    share: float
    alone: float
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """A space in numbers.

    Attributes:
        raw: Points, were all knobs independent.
        distinct: Points with different effects: where a condition fails, its knob has one value.
        valid: Those that keep every rule.
        is_exact: Whether the last two and the shares were counted; else they were estimated from random draws.
    """

    raw: int
    distinct: int
    valid: int
    is_exact: bool
    removals: tuple[Removal, ...]


def audit(space: Space, *, seed: int = 0) -> Audit:
    """Count a space, or estimate it where it has more than ``MOST_COUNTED`` points.

    The estimate is D. E. Knuth's of 1975 for the leaves of a tree: a descent that chooses evenly among its options at
    each level stands for as many points as the product of their numbers; the mean over descents is unbiased.

    Raises:
        RuleError: A rule or a condition cannot be computed.
        CycleError: Conditions or multiples depend on each other in a circle.
    """
    rules = _in_detail(space.rules)
    names = list(dict.fromkeys(rule.name for rule in rules))
    weighed, is_exact = _weighed_points(space, seed)
    total, valid = 0.0, 0.0
    share, alone = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for weight, point in weighed:
        values = space.values_at(point)
        broken = {rule.name for rule in rules if rule.broken(values) is not None}
        total += weight
        valid += 0.0 if broken else weight
        for name in broken:
            share[name] += weight
        if len(broken) == 1:
            alone[broken.pop()] += weight
    scale = total or 1.0
    texts = {rule.name: " and ".join(other.text for other in rules if other.name == rule.name) for rule in rules}
    unknown = _left_to_vllm(space, rules)
    divisor = 1 if is_exact else DRAWS
    return Audit(
        raw=space.size,
        distinct=round(total / divisor),
        valid=round(valid / divisor),
        is_exact=is_exact,
        removals=tuple(
            Removal(name, texts[name], share[name] / scale, alone[name] / scale, unknown[name]) for name in names
        ),
    )


def culprits(space: Space) -> list[str]:
    """The rules to which an empty space owes that it is empty: as few as leave no point together.

    Returns:
        Names of rules; empty when no point is there even without rules.
    """
    rules = _in_detail(space.rules)
    needed = list(dict.fromkeys(rule.name for rule in rules))
    for name in list(needed):
        # From the first on, so that the last that is left is the one that a reader would blame.
        fewer = [other for other in needed if other != name]
        if not _has_points(space, [rule for rule in rules if rule.name in fewer]):
            needed = fewer
    return needed


def _has_points(space: Space, rules: Sequence[Rule]) -> bool:
    return first_point(dataclasses.replace(space, rules=tuple(rules)))[0] is not None


def _in_detail(rules: Sequence[Rule]) -> list[Rule]:
    """Members in place of the rules that join them."""
    return [part for rule in rules for part in (rule.members or (rule,))]


def _left_to_vllm(space: Space, rules: Sequence[Rule]) -> dict[str, tuple[str, ...]]:
    known = {*space.start, *(knob.name for knob in space.knobs)}
    return {
        name: tuple(sorted({read for rule in rules if rule.name == name for read in rule.reads} - known))
        for name in (rule.name for rule in rules)
    }


def _weighed_points(space: Space, seed: int) -> tuple[Iterator[tuple[float, Point]], bool]:
    """Distinct points, valid or not, each with the number of those it stands for; and whether they are all there."""
    free = dataclasses.replace(space, rules=())
    walk, rng = Walk(free), random.Random(f"audit/{seed}")
    if walk.expected_steps(rng, DRAWS // 20) <= 4 * MOST_COUNTED:
        # Every point takes at least one step, so that a walk of so many steps has no more points.
        points = list(walk.points(most_steps=2 * MOST_COUNTED))
        if not walk.is_cut:
            return ((1.0, point) for point in points), True
    return _descents(free, rng), False


def _descents(space: Space, rng: random.Random) -> Iterator[tuple[float, Point]]:
    order = dependency_order(space.knobs)
    for _ in range(DRAWS):
        weight, values, point = 1.0, dict(space.start), dict.fromkeys(knob.name for knob in space.knobs)
        for knob in order:
            found = options(knob, values)
            weight *= len(found)
            if not found:
                break
            value = found[rng.randrange(len(found))]
            point[knob.name] = value
            values[knob.name] = space.start.get(knob.name) if value is None else value
        if weight:
            yield weight, point
