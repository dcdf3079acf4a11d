"""Small random spaces with conditions, multiples and rules."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from orchestrator.search import Knob, Point, Space, parse
from orchestrator.search.conditions import dependency_order, options
from orchestrator.search.rules import expression_rules

CONDITIONS = ("{} > 2", "{} == 4", "{} is None", "default({}, 1) <= 3", "{} in [1, 2, 4]")
RULES = ("{0} <= {1}", "{0} != {1}", "{0} + {1} < 9", "{0} % 2 == 0 or {1} > 3", "{0} == 1 and {1} < 5", "{0} is None")

values = st.lists(st.one_of(st.none(), st.integers(1, 8)), unique=True, min_size=1, max_size=4)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Up to five knobs, each of which may depend on one that comes before or after it."""
    names = draw(st.permutations("abcde"))[: draw(st.integers(1, 5))]
    knobs = []
    for index, name in enumerate(names):
        own = tuple(draw(values))
        # The order of dependence is another one than that of the space, which is shuffled below.
        earlier = names[:index]
        when = draw(st.sampled_from(CONDITIONS)).format(draw(st.sampled_from(earlier))) if earlier else None
        when = when if draw(st.booleans()) else None
        multiple = draw(st.sampled_from(earlier)) if bool(earlier) and draw(st.booleans()) else None
        rests = None in own
        knobs.append(
            Knob(
                name,
                draw(st.sampled_from(["live", "engine", "load"])),
                own if rests or when is None else (*own, None),
                when=parse(when) if when else None,
                multiple_of=multiple,
                rests=rests,
            )
        )
    rules = [
        rule
        for number in range(draw(st.integers(0, 2)))
        for rule in expression_rules(
            f"rules.{number}",
            parse(draw(st.sampled_from(RULES)).format(*(draw(st.sampled_from(names)) for _ in range(2)))),
        )
    ]
    start = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 8), max_size=2))
    return Space(tuple(draw(st.permutations(knobs))), tuple(rules), start)


def brute_force(space: Space) -> list[Point]:
    """Every combination of all values, kept where each knob may have its value and no rule is broken."""
    order = dependency_order(space.knobs)
    found = []
    for combination in itertools.product(*({*knob.values, None} for knob in space.knobs)):
        point: Point = dict(zip((knob.name for knob in space.knobs), combination, strict=True))
        values = space.values_at(point)
        fits = all(any(_same(point[knob.name], value) for value in options(knob, values)) for knob in order)
        if fits and all(rule.broken(values) is None for rule in space.rules):
            found.append(point)
    return found


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right
