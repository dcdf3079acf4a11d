from __future__ import annotations

import pytest
from hypothesis import given

from orchestrator.search import Knob, Space, parse
from orchestrator.search.audit import audit, culprits
from orchestrator.search.rules import expression_rules
from tests.search.spaces import brute_force, spaces


@given(space=spaces())
def test_a_small_space_is_counted(space: Space) -> None:
    found = audit(space)
    free = brute_force(Space(space.knobs, (), space.start))
    assert found.is_exact
    assert (found.raw, found.distinct, found.valid) == (space.size, len(free), len(brute_force(space)))
    for removal in found.removals:
        own = [rule for rule in space.rules if rule.name == removal.name]
        others = [rule for rule in space.rules if rule.name != removal.name]
        broken = [any(rule.broken(space.values_at(point)) is not None for rule in own) for point in free]
        kept = [all(rule.broken(space.values_at(point)) is None for rule in others) for point in free]
        alone = [own_is and others_are for own_is, others_are in zip(broken, kept, strict=True)]
        assert removal.share * len(free) == pytest.approx(sum(broken))
        assert removal.alone * len(free) == pytest.approx(sum(alone))


def test_a_large_space_is_estimated_within_a_few_percent() -> None:
    knobs = [Knob(f"k{index}", "live", tuple(range(10))) for index in range(6)]
    knobs.append(Knob("x", "live", (*range(40), None), when=parse("k0 == 0"), rests=False))
    space = Space(tuple(knobs), tuple(expression_rules("rules.0", parse("k1 < 5"))))
    found = audit(space, seed=1)
    distinct = 10**5 * (9 + 40)
    assert not found.is_exact
    assert found.raw == 10**6 * 40
    assert found.distinct == pytest.approx(distinct, rel=0.15)
    assert found.valid == pytest.approx(distinct / 2, rel=0.15)
    assert found.removals[0].share == pytest.approx(0.5, abs=0.08)
    assert found == audit(space, seed=1)
    assert found != audit(space, seed=2)


def space_of(*rules: str) -> Space:
    made = [rule for number, text in enumerate(rules) for rule in expression_rules(f"rules.{number}", parse(text))]
    return Space((Knob("a", "live", (1, 2, 3)), Knob("b", "live", (1, 2, 3))), tuple(made))


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        (["a < b", "a > 3", "b > 0"], ["rules.1"]),
        (["a < 3", "b == 1", "a > b", "a != 2"], ["rules.0", "rules.2", "rules.3"]),
        (["a < b", "b < a", "a > 0"], ["rules.0", "rules.1"]),
        (["a > b and b > a"], ["rules.0"]),
    ],
)
def test_the_culprits_are_as_few_rules_as_leave_nothing(rules: list[str], names: list[str]) -> None:
    space = space_of(*rules)
    assert space.valid_points(1, seed=0) == []
    assert culprits(space) == names


def test_without_any_point_no_rule_is_to_blame() -> None:
    assert culprits(Space((Knob("a", "live", (3,), multiple_of="b"), Knob("b", "live", (2,))))) == []


def test_a_rule_names_what_it_cannot_judge() -> None:
    space = Space((Knob("a", "live", (1, 2)),), tuple(expression_rules("rules.0", parse("a < b + c"))), {"c": 1})
    assert audit(space).removals[0].unknown == ("b",)
