from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search import Point, group_schedule

GROUPS = st.lists(st.integers(1, 9), min_size=1, max_size=8)
"""Points in each group."""


def points_of(sizes: list[int]) -> list[Point]:
    """Groups of so many points, one after the other."""
    return [{"k": group, "live": live} for group, size in enumerate(sizes) for live in range(size)]


@given(sizes=GROUPS, trials=st.integers(1, 60), seed=st.integers(0, 5), data=st.data())
def test_each_group_is_one_run_and_the_baselines_comes_first(
    sizes: list[int], trials: int, seed: int, data: st.DataObject
) -> None:
    points = points_of(sizes)
    first = {"k": data.draw(st.integers(0, len(sizes) - 1))}
    schedule = group_schedule(points, ["k"], trials=trials, seed=seed, first=first)
    assert len(schedule) == min(trials, len(points))
    assert schedule[0] == first
    runs = {group["k"]: len(list(run)) for group, run in itertools.groupby(schedule, key=lambda group: group)}
    assert sum(runs.values()) == len(schedule)
    assert len(runs) == min(trials, len(sizes))
    assert all(share <= sizes[int(str(group))] for group, share in runs.items())
    # As equal as the sizes allow: who has less than another has no point left.
    for group, share in runs.items():
        assert share + 1 >= max(runs.values()) or share == sizes[int(str(group))]
    assert group_schedule(points, ["k"], trials=trials, seed=seed, first=first) == schedule


def test_with_more_groups_than_trials_the_seed_chooses() -> None:
    points = points_of([2] * 64)
    schedules = [group_schedule(points, ["k"], trials=5, seed=seed, first={"k": 10}) for seed in range(20)]
    assert all(schedule[0] == {"k": 10} for schedule in schedules)
    assert len({json.dumps(schedule) for schedule in schedules}) > 10


def test_a_baseline_outside_the_space_leads_nothing() -> None:
    schedule = group_schedule(points_of([2, 2]), ["k"], trials=4, seed=0, first={"k": None})
    assert schedule == [{"k": 0}, {"k": 0}, {"k": 1}, {"k": 1}]


def test_without_engine_knobs_all_trials_share_one_empty_group() -> None:
    assert group_schedule(points_of([5]), [], trials=3, seed=0, first={}) == [{}, {}, {}]
