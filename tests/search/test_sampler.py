from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.engines import KnobValue
from orchestrator.measurement import Direction
from orchestrator.search import Point, group_schedule
from orchestrator.search.portfolio import LOST_ATTR
from orchestrator.search.sampler import Kind, ScheduledSampler

KINDS: Sequence[Kind] = get_args(Kind)
FAST: Sequence[Kind] = [kind for kind in KINDS if kind != "gp"]
"""A Gaussian process of Optuna takes a second for each proposal."""
SIZES = (16, 32, None)

optuna.logging.set_verbosity(optuna.logging.WARNING)


def product(**values: Sequence[KnobValue]) -> list[Point]:
    """Every combination."""
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


LIVE = product(rows=[2**power for power in range(7, 17)], tokens=[256, 512, 1024, 2048])
GROUPED = product(size=SIZES, rows=[2**power for power in range(7, 17)], tokens=[256, 512, 1024, 2048])


def cost(point: Point) -> float:
    """A bowl: best at 1024 rows and 512 tokens."""
    rows, tokens, size = point["rows"], point["tokens"], point.get("size")
    assert isinstance(rows, int)
    assert isinstance(tokens, int)
    return 1.0 + abs(math.log2(rows) - 10) / 7 + abs(math.log2(tokens) - 9) / 2 + (0.0 if size else 0.3)


class Study:
    """A study over points in some storage, opened anew by each object."""

    def __init__(
        self,
        points: Sequence[Point],
        *,
        kind: Kind = "tpe",
        seed: int = 0,
        trials: int = 40,
        storage: BaseStorage | None = None,
        startup: int = 6,
        directions: Sequence[Direction] = ("minimize",),
    ) -> None:
        self._choices = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
        knobs = [name for name in self._choices if name == "size"]
        first = {name: points[0][name] for name in knobs}
        self.schedule = group_schedule(points, knobs, trials=trials, seed=seed, first=first)
        distributions = {name: CategoricalDistribution(values) for name, values in self._choices.items()}
        sampler = ScheduledSampler(
            points, kind, distributions, engine_knobs=knobs, schedule=self.schedule, seed=seed, startup=startup
        )
        self.study = optuna.create_study(
            study_name="s",
            storage=storage or InMemoryStorage(),
            sampler=sampler,
            directions=list(directions),
            load_if_exists=True,
        )

    def ask(self) -> tuple[optuna.Trial, Point]:
        trial = self.study.ask()
        return trial, {name: trial.suggest_categorical(name, values) for name, values in self._choices.items()}

    def step(self) -> Point:
        """One trial from its proposal to its result."""
        trial, point = self.ask()
        self.study.tell(trial, cost(point))
        return point

    def fail(self, *, lost: bool = False) -> Point:
        trial, point = self.ask()
        if lost:
            trial.set_user_attr(LOST_ATTR, True)
        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return point


def key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)


@pytest.mark.parametrize("kind", FAST)
def test_no_point_comes_twice_before_all_were_seen(kind: Kind) -> None:
    points = LIVE[:20]
    study = Study(points, kind=kind, trials=len(points) + 5)
    found = [key(study.step()) for _ in range(len(points) + 5)]
    assert len(set(found[: len(points)])) == len(points)
    assert set(found[len(points) :]) <= set(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_that_is_not_listed_is_never_proposed(kind: Kind) -> None:
    """The list has holes where Optuna's sampler sees a whole grid."""
    points = [point for at, point in enumerate(LIVE) if at % 3 != 1]
    study = Study(points, kind=kind, startup=4)
    listed, found = {key(point) for point in points}, [key(study.step()) for _ in range(10)]
    assert set(found) <= listed
    assert len(set(found)) == 10


@settings(max_examples=10)
@given(outcomes=st.lists(st.booleans(), min_size=12, max_size=12), seed=st.integers(0, 3))
def test_a_point_that_failed_or_is_still_running_is_not_proposed_again(outcomes: list[bool], seed: int) -> None:
    study = Study(LIVE[:20], seed=seed)
    _, running = study.ask()
    points = [study.step() if complete else study.fail() for complete in outcomes]
    assert len({key(point) for point in (running, *points)}) == 13


def test_a_point_whose_trial_was_lost_comes_again_after_all_others() -> None:
    study = Study(LIVE[:4], kind="random")
    lost = study.fail(lost=True)
    points = [key(study.step()) for _ in range(4)]
    assert len(set(points)) == 4
    assert points[-1] == key(lost)


@pytest.mark.parametrize("kind", FAST)
def test_the_group_of_a_trial_is_the_schedules(kind: Kind) -> None:
    study = Study(GROUPED, kind=kind, trials=45)
    points = [study.step() for _ in range(45)]
    assert [{"size": point["size"]} for point in points] == study.schedule
    assert len({key(point) for point in points}) == 45


def test_a_group_without_an_open_point_gives_way_to_the_next() -> None:
    points = [*product(size=[16], rows=[1, 2]), *product(size=[32], rows=[1, 2, 4])]
    study = Study(points, kind="random", trials=5)
    # One trial more in the first group than the schedule knows of.
    study.study.enqueue_trial(dict(points[1]))
    found = [study.ask()[1] for _ in range(5)]
    assert len({key(point) for point in found}) == 5
    assert [point["size"] for point in found] == [16, 16, 32, 32, 32]


@pytest.mark.parametrize("points", [LIVE, GROUPED], ids=["live", "grouped"])
@pytest.mark.parametrize("kind", FAST)
def test_equal_seeds_propose_equal_points_and_others_do_not(points: Sequence[Point], kind: Kind) -> None:
    def run(seed: int) -> list[str]:
        study = Study(points, kind=kind, seed=seed)
        return [key(study.step()) for _ in range(16)]

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize(
    ("kind", "stop"), [("tpe", 1), ("tpe", 6), ("tpe", 13), ("nsga2", 9), ("random", 3), ("gp", 7)]
)
def test_reopened_from_its_journal_a_study_goes_on_as_it_would_have(tmp_path: Path, kind: Kind, stop: int) -> None:
    def storage(name: str) -> BaseStorage:
        return JournalStorage(JournalFileBackend(str(tmp_path / name)))

    count = 9 if kind == "gp" else 16
    undisturbed = Study(GROUPED, kind=kind, storage=storage("a"))
    expected = [undisturbed.step() for _ in range(count)]
    first = Study(GROUPED, kind=kind, storage=storage("b"))
    points = [first.step() for _ in range(stop)]
    second = Study(GROUPED, kind=kind, storage=storage("b"))
    assert [*points, *(second.step() for _ in range(count - stop))] == expected


def test_a_space_of_engine_knobs_alone_takes_its_points_from_the_schedule() -> None:
    study = Study(product(size=SIZES), trials=3)
    assert {key(study.ask()[1]) for _ in range(3)} == {key({"size": size}) for size in SIZES}


@pytest.mark.parametrize("kind", FAST)
def test_several_objectives_are_taken(kind: Kind) -> None:
    study = Study(LIVE, kind=kind, directions=["minimize", "maximize"])
    for number in range(16):
        trial, point = study.ask()
        if number % 4 == 3:
            trial.set_constraint("slo", 1.0)
            study.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.study.tell(trial, [cost(point), float(point["rows"] or 0)])
    assert len({key(trial.params) for trial in study.study.trials}) == 16


def test_a_name_that_is_not_in_the_space_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="x is not a knob of the space"):
        Study(LIVE).study.ask().suggest_int("x", 0, 1)


@pytest.mark.parametrize(("kind", "seeds"), [("tpe", 25), ("nsga2", 25), ("gp", 1)])
def test_it_finds_better_points_than_a_random_order_does(kind: Kind, seeds: int) -> None:
    # Sums over seeded studies: nothing here depends on the clock, so the margin cannot be missed by chance.
    budget = 24 if kind == "nsga2" else 16

    def best_of(points: list[Any]) -> float:
        return min(cost(point) for point in points)

    ours = theirs = 0.0
    for seed in range(seeds):
        study = Study(LIVE, kind=kind, seed=seed)
        ours += best_of([study.step() for _ in range(budget)])
        theirs += best_of(random.Random(seed).sample(LIVE, budget))
    assert ours < theirs
