from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.search.portfolio.costs import GroupCost, GroupCosts
from orchestrator.search.portfolio.features import Value
from tests.search.portfolio.conftest import GRID, POINTS

COST = GroupCost(knobs=("backend", "fused"), start_s=30.0, trial_s=10.0, warm=2)


def groups(warm: np.ndarray[tuple[int], np.dtype[np.float64]]) -> set[tuple[object, object]]:
    return {(GRID[row]["backend"], GRID[row]["fused"]) for row in np.flatnonzero(warm == 0)}


def row(backend: str, fused: bool) -> int:
    return next(i for i, point in enumerate(GRID) if point["backend"] == backend and point["fused"] == fused)


def test_the_groups_asked_for_last_are_warm() -> None:
    asked = np.array([row("c", True), row("a", True), row("b", False), row("a", True)], dtype=np.int32)
    found = GroupCosts(POINTS, COST).log_ratio(asked)
    assert groups(found) == {("a", True), ("b", False)}
    assert found.max() == pytest.approx(math.log(4.0))


def test_seconds_that_were_measured_count_instead() -> None:
    found = GroupCosts(POINTS, COST).log_ratio(np.array([0], dtype=np.int32), start_s=90.0, trial_s=10.0)
    assert found.max() == pytest.approx(math.log(10.0))


def test_at_first_every_group_is_cold() -> None:
    assert GroupCosts(POINTS, COST).log_ratio(np.zeros(0, dtype=np.int32)).min() == pytest.approx(math.log(4.0))


def test_a_kept_engine_is_warm_from_the_start_and_takes_no_others_place() -> None:
    cost = GroupCost(knobs=("backend", "fused"), start_s=30.0, trial_s=10.0, kept={"backend": "b", "fused": False})
    costs = GroupCosts(POINTS, cost)
    assert groups(costs.log_ratio(np.zeros(0, dtype=np.int32))) == {("b", False)}
    asked = np.array([row("a", True), row("c", True), row("b", False), row("b", False)], dtype=np.int32)
    assert groups(costs.log_ratio(asked)) == {("b", False), ("c", True)}


def test_where_no_other_engine_fits_only_the_kept_one_is_warm() -> None:
    kept: dict[str, Value] = {"backend": "b", "fused": False}
    cost = GroupCost(knobs=("backend", "fused"), start_s=30.0, trial_s=10.0, warm=0, kept=kept)
    asked = np.array([row("a", True)], dtype=np.int32)
    assert groups(GroupCosts(POINTS, cost).log_ratio(asked)) == {("b", False)}
    elsewhere = GroupCost(knobs=("backend",), start_s=30.0, trial_s=10.0, warm=0, kept={"backend": None})
    assert groups(GroupCosts(POINTS, elsewhere).log_ratio(asked)) == set()


def test_what_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="a warm engine are needed"):
        GroupCost(knobs=("backend",), start_s=30.0, trial_s=1.0, warm=0)
    with pytest.raises(ValueError, match="start_s >= 0"):
        GroupCost(knobs=("backend",), start_s=30.0, trial_s=0.0)
    with pytest.raises(ValueError, match="blocks is not a knob"):
        GroupCosts(POINTS, GroupCost(knobs=("blocks",), start_s=30.0, trial_s=1.0))


def test_where_there_are_several_places_the_engines_of_the_one_that_asks_are_warm() -> None:
    here: list[dict[str, Value]] = []
    cost = GroupCost(
        knobs=("backend", "fused"),
        start_s=30.0,
        trial_s=10.0,
        kept={"backend": "b", "fused": False},
        warm_now=lambda: here,
    )
    costs, asked = GroupCosts(POINTS, cost), np.array([row("a", True)], dtype=np.int32)
    assert groups(costs.log_ratio(asked)) == {("b", False)}
    here.append({"backend": "c", "fused": True})
    assert groups(costs.log_ratio(asked)) == {("b", False), ("c", True)}
