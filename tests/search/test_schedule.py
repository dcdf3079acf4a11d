from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search import Knob, Space, group_schedule

sizes = st.lists(st.integers(1, 4), min_size=0, max_size=3)


def space_of(sizes: list[int]) -> Space:
    """Engine knobs with that many values, and one live knob."""
    engine = [Knob(f"k{index}", "engine", tuple(range(size))) for index, size in enumerate(sizes)]
    return Space((*engine, Knob("live", "live", (1, 2))))


@given(sizes=sizes, trials=st.integers(1, 60), seed=st.integers(0, 5), data=st.data())
def test_each_group_is_one_run_and_the_baselines_comes_first(
    sizes: list[int], trials: int, seed: int, data: st.DataObject
) -> None:
    space = space_of(sizes)
    first = data.draw(st.sampled_from(space.groups()))
    schedule = group_schedule(space, trials=trials, seed=seed, first=first)
    assert len(schedule) == trials
    assert schedule[0] == first
    runs = [json.dumps(dict(group)) for group, _ in itertools.groupby(schedule)]
    assert len(runs) == len(set(runs)) == min(trials, len(space.groups()))
    assert all(group in space.groups() for group in schedule)
    shares = [len(list(run)) for _, run in itertools.groupby(schedule)]
    assert max(shares) - min(shares) <= 1
    assert group_schedule(space, trials=trials, seed=seed, first=first) == schedule


def test_with_more_groups_than_trials_the_seed_chooses() -> None:
    space = space_of([4, 4, 4])
    first = space.groups()[10]
    schedules = [group_schedule(space, trials=5, seed=seed, first=first) for seed in range(20)]
    assert all(schedule[0] == first for schedule in schedules)
    assert len({json.dumps(schedule) for schedule in schedules}) > 10


def test_a_baseline_outside_the_space_leads_nothing() -> None:
    schedule = group_schedule(space_of([2]), trials=4, seed=0, first={"k0": None})
    assert schedule == [{"k0": 0}, {"k0": 0}, {"k0": 1}, {"k0": 1}]


def test_without_engine_knobs_all_trials_share_one_empty_group() -> None:
    assert group_schedule(space_of([]), trials=3, seed=0, first={}) == [{}, {}, {}]
