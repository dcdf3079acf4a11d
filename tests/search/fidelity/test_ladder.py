from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.search.fidelity import Job, Ladder, Rung, most_cost, most_entrants

THREE = (Rung(name="planning"), Rung(name="short", cost=0.1), Rung(name="full", cost=1.0))

values = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=30)
etas = st.sampled_from([1.5, 2.0, 3.0, 4.0])
seeds = st.integers(0, 2**20)

Measure = Callable[[Job], "tuple[float, tuple[float, float] | None] | None"]


def climb(ladder: Ladder, measure: Measure, *, workers: int = 1, seed: int = 0) -> list[Job]:
    """Run a ladder to its end with so many workers, which end in an order that the seed decides; None is a failure.

    Returns the jobs in the order in which they were handed out.
    """
    rng = random.Random(seed)
    handed: list[Job] = []
    while not ladder.is_done:
        while len(ladder.pending) < workers and (job := ladder.next()) is not None:
            handed.append(job)
        job = rng.choice(ladder.pending)
        found = measure(job)
        if found is None:
            ladder.fail(job)
        else:
            ladder.report(job, *found)
    assert ladder.next() is None
    return handed


def plain(table: Sequence[float]) -> Measure:
    return lambda job: (table[job.point], None)


def test_a_third_climbs_by_rank_and_the_best_first() -> None:
    ladder = Ladder(9, THREE)
    table = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0]
    handed = climb(ladder, plain(table))
    assert [job.point for job in handed if job.rung == 0] == list(range(9))
    assert ladder.promoted(0) == [1, 5, 3]
    assert ladder.promoted(1) == [1]
    assert ladder.ranking(2) == [1]


def test_larger_is_better_where_the_direction_says_so() -> None:
    ladder = Ladder(6, THREE[1:], direction="maximize")
    climb(ladder, plain([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert ladder.promoted(0) == [5, 4]


def test_what_is_surely_worse_does_not_climb() -> None:
    def measure(job: Job) -> tuple[float, tuple[float, float] | None]:
        value = [1.0, 1.04, 1.30, 2.0][job.point]
        return value, (value * 0.98, value * 1.02)

    ladder = Ladder(4, THREE[1:], eta=1.4, slack=0.05)
    climb(ladder, measure)
    # Three of four may climb. 1.27, the third's lower end, lies beyond 1.02 * 1.05.
    assert ladder.promoted(0) == [0, 1]
    without = Ladder(4, THREE[1:], eta=1.4)
    climb(without, plain([1.0, 1.04, 1.30, 2.0]))
    assert without.promoted(0) == [0, 1, 2]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_slack_is_a_share_in_both_directions(direction: Literal["minimize", "maximize"]) -> None:
    def measure(job: Job) -> tuple[float, tuple[float, float] | None]:
        value = [1.0, 1.04, 1.06][job.point] ** (1 if direction == "minimize" else -1)
        return value, (value, value)

    ladder = Ladder(3, THREE[1:], eta=1.01, slack=0.05, direction=direction)
    climb(ladder, measure)
    assert ladder.promoted(0) == [0, 1]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_intervals_that_overlap_leave_a_point_in(direction: Literal["minimize", "maximize"]) -> None:
    larger = (1.0, (0.9, 1.1)), (0.8, (0.5, 0.95)), (0.7, (0.5, 0.8))
    smaller = (1.0, (0.9, 1.1)), (1.25, (1.05, 2.0)), (1.4, (1.25, 2.0))
    figures = smaller if direction == "minimize" else larger
    ladder = Ladder(3, THREE[1:], eta=1.01, slack=0.0, direction=direction)
    climb(ladder, lambda job: figures[job.point])
    assert ladder.promoted(0) == [0, 1]


def test_points_of_one_group_follow_each_other() -> None:
    ladder = Ladder(6, THREE[1:], eta=1.5, groups=["a", "b", "a", "b", "a", "b"])
    handed = climb(ladder, plain([4.0, 1.0, 2.0, 3.0, 6.0, 5.0]))
    assert [job.point for job in handed if job.rung == 0] == [0, 2, 4, 1, 3, 5]
    # Ranked 1, 2, 3, 0; the last group at hand was b.
    assert [job.point for job in handed if job.rung == 1] == [1, 3, 2, 0]


def test_a_lost_measurement_is_handed_out_again() -> None:
    ladder = Ladder(3, THREE[1:])
    first = ladder.next()
    assert first is not None
    ladder.lose(first)
    assert ladder.next() == first


def test_a_rung_bounds_what_climbs_to_it() -> None:
    rungs = (THREE[0], Rung(name="full", most=2))
    ladder = Ladder(30, rungs)
    climb(ladder, plain(range(1, 31)))
    assert ladder.promoted(0) == [0, 1]
    assert most_entrants(30, rungs, 3.0) == [30, 2]


def test_what_a_ladder_costs_at_most() -> None:
    assert most_entrants(28, THREE, 4.0) == [28, 7, 2]
    assert most_cost(28, THREE, 4.0) == pytest.approx(7 * 0.1 + 2 * 1.0)


def test_an_idle_worker_takes_a_leader_up_only_when_eager() -> None:
    for eager in (False, True):
        ladder = Ladder(6, THREE[1:], eta=3.0, eager=eager)
        jobs = [ladder.next() for _ in range(6)]
        for job in jobs[:3]:
            assert job is not None
            ladder.report(job, 1.0 + job.point)
        assert ladder.next() == (Job(0, 1) if eager else None)
        # One in three of those that have a value: no second one yet.
        assert ladder.next() is None


def test_leaders_that_change_do_not_take_more_up_than_their_share() -> None:
    ladder = Ladder(9, THREE[1:], eta=3.0, eager=True)
    jobs = [job for _ in range(9) if (job := ladder.next()) is not None]
    for job, value in zip(jobs[:3], (5.0, 6.0, 7.0), strict=True):
        ladder.report(job, value)
    assert ladder.next() == Job(0, 1)
    for job, value in zip(jobs[3:6], (1.0, 2.0, 9.0), strict=True):
        ladder.report(job, value)
    # Two of six may be up, and one is; that it leads no more does not make room.
    assert ladder.next() == Job(3, 1)
    assert ladder.next() is None


def test_nothing_climbs_when_all_fail() -> None:
    ladder = Ladder(4, THREE)
    climb(ladder, lambda job: None)
    assert ladder.entered(1) == ladder.entered(2) == 0


@given(values, etas, seeds)
@settings(max_examples=60)
def test_what_climbs_does_not_depend_on_the_workers(table: list[float], eta: float, seed: int) -> None:
    alone, many = Ladder(len(table), THREE, eta=eta), Ladder(len(table), THREE, eta=eta)
    climb(alone, plain(table))
    climb(many, plain(table), workers=4, seed=seed)
    for rung in range(2):
        assert alone.promoted(rung) == many.promoted(rung)


@given(values, etas, seeds, st.booleans(), st.floats(0.0, 0.5))
@settings(max_examples=100)
def test_rank_budget_and_failures(table: list[float], eta: float, seed: int, eager: bool, width: float) -> None:
    rng = random.Random(seed)
    failing = {point for point in range(len(table)) if rng.random() < 0.2}

    def measure(job: Job) -> tuple[float, tuple[float, float] | None] | None:
        if job.point in failing:
            return None
        value = table[job.point] * (1 + 0.1 * job.rung)
        return value, (value * (1 - width), value * (1 + width))

    ladder = Ladder(len(table), THREE, eta=eta, eager=eager)
    handed = climb(ladder, measure, workers=3, seed=seed)
    assert len(handed) == len(set(handed))
    for rung in range(2):
        ranking, promoted, entered = ladder.ranking(rung), ladder.promoted(rung), ladder.entered(rung)
        kept = math.ceil(entered / eta)
        # The top point always climbs, nothing twice, and no failure.
        assert ranking[:1] == [] or ranking[0] in promoted
        assert len(promoted) == len(set(promoted)) == ladder.entered(rung + 1)
        assert not failing & set(promoted)
        if not eager:
            # What `kept` others beat never climbs.
            assert promoted == [point for point in ranking[:kept] if point in promoted]
        assert len(promoted) <= kept + (math.floor(entered / eta) if eager else 0)
    if not eager:
        assert all(ladder.entered(rung) <= most for rung, most in enumerate(most_entrants(len(table), THREE, eta)))


@given(values, seeds)
@settings(max_examples=30)
def test_a_ladder_that_is_told_the_same_goes_on_in_the_same_way(table: list[float], seed: int) -> None:
    """What a resumed sweep relies on: the reports so far, told to a new ladder, give the same next job."""
    whole = Ladder(len(table), THREE)
    handed = climb(whole, plain(table))
    cut = random.Random(seed).randrange(len(handed) + 1)
    resumed = Ladder(len(table), THREE)
    for job in handed[:cut]:
        assert resumed.next() == job
        resumed.report(job, table[job.point])
    assert resumed.next() == (handed[cut] if cut < len(handed) else None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": 0}, "points must be at least 1, got 0"),
        ({"rungs": ()}, "rungs is empty"),
        ({"eta": 1.0}, "eta must be above 1"),
        ({"eta": math.inf}, "eta must be above 1 and finite"),
        ({"slack": -0.1}, "slack must be a number from 0 up"),
        ({"direction": "up"}, "direction must be minimize or maximize"),
        ({"groups": ["a"]}, "groups must hold one key for each of 4 points, got 1"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ladder(**{"points": 4, "rungs": THREE, **arguments})  # type: ignore[arg-type]


def test_wrong_reports() -> None:
    ladder = Ladder(2, THREE)
    with pytest.raises(ValueError, match="point 0 is not pending on rung 0"):
        ladder.report(Job(0, 0), 1.0)
    job = ladder.next()
    assert job is not None
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="value must be a finite number above 0"):
            ladder.report(job, value)
    with pytest.raises(ValueError, match="interval must reach"):
        ladder.report(job, 1.0, (1.1, 1.2))
    ladder.report(job, 1.0)
    with pytest.raises(ValueError, match="is not pending"):
        ladder.fail(job)


def test_wrong_rungs() -> None:
    with pytest.raises(ValueError, match="cost must be a number from 0 up"):
        Rung(name="full", cost=-1.0)
    with pytest.raises(ValueError, match="most must be at least 1"):
        Rung(name="full", most=0)
