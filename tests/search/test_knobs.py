from __future__ import annotations

from orchestrator.search import Knob, Space, parse


def test_a_space_without_knobs_of_the_engine_has_one_empty_group() -> None:
    space = Space((Knob("a", "live", (1, 2)), Knob("load.concurrency", "load", (1, 2, 4))))
    assert space.groups() == [{}]
    assert space.size == 6
    assert space.names("load") == ["load.concurrency"]
    assert space.names("engine") == []


def test_a_conditional_knob_has_none_among_its_values_and_not_among_its_choices() -> None:
    knob = Knob("a", "engine", (1, 2, None), when=parse("b > 1"), rests=False)
    assert knob.choices == (1, 2)
    assert Knob("a", "engine", (1, None), when=parse("b > 1")).choices == (1, None)
    assert Space((knob, Knob("b", "engine", (1, 2)))).size == 4


def test_a_group_is_there_once_however_many_points_share_it() -> None:
    space = Space((Knob("live", "live", (1, 2, 3)), Knob("a", "engine", (1, True)), Knob("b", "engine", ("x",))))
    assert space.groups() == [{"a": 1, "b": "x"}, {"a": True, "b": "x"}]
    assert [type(group["a"]) for group in space.groups()] == [int, bool]


def test_what_rules_read_is_the_point_and_the_engines_start() -> None:
    space = Space((Knob("a", "live", (1, None)),), start={"a": 7, "b": 8})
    assert space.values_at({"a": None}) == {"a": 7, "b": 8}
    assert space.values_at({"a": 1}) == {"a": 1, "b": 8}
