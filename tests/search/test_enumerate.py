from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search import CycleError, Knob, Point, RuleError, Space, parse
from orchestrator.search.enumerate import MOST_LISTED, Walk, first_point, sample
from orchestrator.search.rules import expression_rules
from tests.search.spaces import brute_force, spaces


def key(point: Point) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in point.items()))


@given(space=spaces())
def test_the_listed_points_are_those_of_a_brute_force_filter(space: Space) -> None:
    points = space.valid_points(1, seed=0)
    assert sorted(map(key, points)) == sorted(map(key, brute_force(space)))
    assert all(list(point) == [knob.name for knob in space.knobs] for point in points)
    assert all(space.violated(point) is None for point in points)
    assert points == space.valid_points(5, seed=9)
    assert len(points) <= space.size


@given(space=spaces(), seed=st.integers(0, 9), limit=st.integers(1, 6))
def test_a_sample_is_a_subset_without_repeats_and_the_same_for_the_same_seed(
    space: Space, seed: int, limit: int
) -> None:
    found = sample(space, limit, seed)
    everything = set(map(key, space.valid_points(1, seed=0)))
    assert len(set(map(key, found))) == len(found) == min(limit, len(everything))
    assert set(map(key, found)) <= everything
    assert found == sample(space, limit, seed)
    point, is_certain = first_point(space)
    assert is_certain
    assert (point is None) == (not everything)


@given(space=spaces())
def test_groups_are_the_engine_parts_of_the_valid_points(space: Space) -> None:
    names = space.names("engine")
    expected = {key({name: point[name] for name in names}) for point in space.valid_points(1, seed=0)}
    groups = space.groups()
    if names:
        assert set(map(key, groups)) == expected
    else:
        assert groups == [{}]
    assert len(set(map(key, groups))) == len(groups)


def large(*rules: str, knobs: int = 8, values: int = 30) -> Space:
    made = [rule for number, text in enumerate(rules) for rule in expression_rules(f"rules.{number}", parse(text))]
    return Space(tuple(Knob(f"k{index}", "live", tuple(range(values))) for index in range(knobs)), tuple(made))


def test_a_large_space_is_sampled_and_not_listed() -> None:
    space = large("k0 + k7 == 29")
    assert space.size > MOST_LISTED
    assert space.all_points is None
    points = space.valid_points(200, seed=3)
    assert len(points) == 200
    assert all(point["k0"] + point["k7"] == 29 for point in points)  # type: ignore[operator]
    assert points != space.valid_points(200, seed=4)
    # All values turn up: no part of the space is left out.
    assert len({point["k0"] for point in points}) == 30


def test_a_sample_finds_points_of_a_space_whose_rules_leave_one_in_a_million() -> None:
    space = large("k0 == k7 and k1 + k6 == 58", "k2 == k3 and k3 == k4")
    points = space.valid_points(40, seed=1)
    assert len(points) == 40
    assert all(space.violated(point) is None for point in points)


def test_a_large_space_of_which_little_is_left_is_listed() -> None:
    space = large(*(f"k{index} in [0, 1]" for index in range(8)))
    assert space.all_points is not None
    assert len(space.all_points) == 2**8


def test_knobs_in_a_circle_are_an_error_that_names_it() -> None:
    knobs = (
        Knob("a", "live", (1, None), when=parse("b > 1"), rests=False),
        Knob("b", "live", (1, 2), multiple_of="c"),
        Knob("c", "live", (1, None), when=parse("a == 1 and d == 1"), rests=False),
        Knob("d", "live", (1,)),
    )
    with pytest.raises(CycleError, match="a -> b -> c -> a"):
        Space(knobs).valid_points(1, seed=0)


def test_a_rule_that_cannot_be_computed_is_an_error_with_the_values() -> None:
    space = Space((Knob("a", "live", ("x", 1)),), tuple(expression_rules("rules.0", parse("a < 3"))))
    with pytest.raises(RuleError, match=r"rules.0: 'a < 3', column 1: 'x' < 3 .*\(a='x'\)"):
        space.valid_points(1, seed=0)
    number = Space((Knob("a", "live", (1,)),), tuple(expression_rules("rules.0", parse("a + 3"))))
    with pytest.raises(RuleError, match="gives 4; a rule is a condition"):
        number.valid_points(1, seed=0)


def test_a_walk_that_is_cut_says_so() -> None:
    space = large(knobs=3)
    walk = Walk(space)
    assert len(list(walk.points(most_steps=100))) < 100
    assert walk.is_cut
    assert len(list(Walk(space).points(random.Random(1)))) == 30**3


def test_a_rule_without_knobs_rules_out_all_or_nothing() -> None:
    rules = tuple(expression_rules("rules.0", parse("tp == 8")))
    knobs = (Knob("a", "live", (1, 2)),)
    assert len(Space(knobs, rules, {"tp": 8}).valid_points(1, seed=0)) == 2
    assert Space(knobs, rules, {"tp": 4}).valid_points(1, seed=0) == []
    assert len(Space(knobs, rules).valid_points(1, seed=0)) == 2


def test_a_point_that_is_not_canonical_is_ruled_out() -> None:
    knobs = (
        Knob("dcp", "engine", (1, 2)),
        Knob("interleave", "engine", (1, 16, None), when=parse("dcp > 1"), rests=False),
        Knob("block", "engine", (16, 24), multiple_of="interleave"),
    )
    space = Space(knobs)
    assert space.violated({"dcp": 1, "interleave": 16}) == "interleave: 16 has no effect: dcp > 1 does not hold"
    assert space.violated({"dcp": 2, "interleave": 16, "block": 24}) == "block: 24 is no multiple of interleave, 16"
    assert space.violated({"dcp": 2}) is None
