from __future__ import annotations

import itertools

import pytest

from orchestrator.engines import KnobValue
from orchestrator.search import CycleError, Knob, RuleError, parse
from orchestrator.search.conditions import dependency_order, is_active, is_multiple, options

BLOCK = Knob("block", "engine", (16, 24, 32, None), when=parse("dcp > 1"), multiple_of="interleave", rests=False)


def test_a_knob_comes_after_all_that_it_depends_on_whatever_the_order() -> None:
    knobs = [BLOCK, Knob("dcp", "engine", (1, 2)), Knob("interleave", "engine", (1, 8)), Knob("other", "live", (1,))]
    for ordered in itertools.permutations(knobs):
        names = [knob.name for knob in dependency_order(ordered)]
        assert names.index("block") > max(names.index("dcp"), names.index("interleave"))
        assert sorted(names) == ["block", "dcp", "interleave", "other"]
    # What depends on nothing keeps its place.
    assert [knob.name for knob in dependency_order(knobs[1:])] == ["dcp", "interleave", "other"]


def test_a_knob_that_depends_on_itself_is_a_circle() -> None:
    with pytest.raises(CycleError, match="a -> a"):
        dependency_order([Knob("a", "live", (2,), multiple_of="a")])


@pytest.mark.parametrize(
    ("dcp", "interleave", "values"),
    [
        (1, 1, [None]),
        (2, 1, [16, 24, 32]),
        (2, 16, [16, 32]),
        (2, 5, []),
        # A multiple of what vLLM chooses is not judged; a condition on it does not hold.
        (2, None, [16, 24, 32]),
        (None, 1, [None]),
    ],
)
def test_what_a_knob_may_take_beside_the_others(dcp: int | None, interleave: int | None, values: list[int]) -> None:
    assert list(options(BLOCK, {"dcp": dcp, "interleave": interleave})) == values


@pytest.mark.parametrize(
    ("value", "other", "fits"),
    [(64, 16, True), (64, 48, False), (None, 16, True), (64, None, True), (64, 0, False), (0, 16, True)],
)
def test_a_multiple_has_no_rest(value: KnobValue, other: KnobValue, fits: bool) -> None:
    assert is_multiple(value, other) == fits


def test_a_condition_that_is_none_is_an_error_that_names_its_knob() -> None:
    number = Knob("a", "live", (1,), when=parse("b"))
    assert not is_active(number, {"b": None})
    assert is_active(number, {"b": True})
    with pytest.raises(RuleError, match=r"space\.a\.when: 'b' gives 3; it must be a condition"):
        is_active(number, {"b": 3})
    with pytest.raises(RuleError, match=r"space\.a\.when: 'b > 1', column 1: 'x' > 1 compares"):
        is_active(Knob("a", "live", (1,), when=parse("b > 1")), {"b": "x"})
