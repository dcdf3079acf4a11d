from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.search import Knob, Point, Space, group_schedule
from orchestrator.search.sampler import UnseenPointSampler

ROWS = Knob("rows", "live", tuple(2**power for power in range(7, 17)))
TOKENS = Knob("tokens", "live", (256, 512, 1024, 2048))
SIZE = Knob("size", "engine", (16, 32, None))
LIVE = Space((ROWS, TOKENS))
GROUPED = Space((SIZE, *LIVE.knobs))

optuna.logging.set_verbosity(optuna.logging.WARNING)


def cost(point: Point) -> float:
    """A bowl: best at 1024 rows and 512 tokens."""
    rows, tokens, size = point["rows"], point["tokens"], point.get("size")
    assert isinstance(rows, int)
    assert isinstance(tokens, int)
    return 1.0 + abs(math.log2(rows) - 10) / 7 + abs(math.log2(tokens) - 9) / 2 + (0.0 if size else 0.3)


class Study:
    """A study over a space in some storage, opened anew by each object."""

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        trials: int = 40,
        storage: BaseStorage | None = None,
        startup: int = 6,
        group_of: Callable[[int], Point] | None = None,
    ) -> None:
        self._space = space
        schedule = group_schedule(space, trials=trials, seed=seed, first=space.groups()[0])
        sampler = UnseenPointSampler(space, group_of or schedule.__getitem__, seed=seed, startup_trials=startup)
        self._study = optuna.create_study(
            study_name="s", storage=storage or InMemoryStorage(), sampler=sampler, load_if_exists=True
        )
        self.schedule = schedule

    def ask(self) -> tuple[int, Point]:
        trial = self._study.ask()
        return trial.number, {
            knob.name: trial.suggest_categorical(knob.name, list(knob.values)) for knob in self._space.knobs
        }

    def step(self) -> Point:
        """One trial from its proposal to its result."""
        number, point = self.ask()
        self._study.tell(number, cost(point))
        return point

    def fail(self) -> Point:
        number, point = self.ask()
        self._study.tell(number, state=optuna.trial.TrialState.FAIL)
        return point


def key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)


@pytest.mark.parametrize("seed", range(4))
def test_no_point_comes_twice_before_all_were_seen(seed: int) -> None:
    study = Study(LIVE, seed=seed, trials=LIVE.size + 5)
    points = [key(study.step()) for _ in range(LIVE.size + 5)]
    assert len(set(points[: LIVE.size])) == LIVE.size
    assert set(points[LIVE.size :]) <= set(points)


@settings(max_examples=10)
@given(outcomes=st.lists(st.booleans(), min_size=12, max_size=12), seed=st.integers(0, 3))
def test_a_point_that_failed_or_is_still_running_is_not_proposed_again(outcomes: list[bool], seed: int) -> None:
    study = Study(Space((ROWS, Knob("tokens", "live", (256, 512)))), seed=seed)
    _, running = study.ask()
    points = [study.step() if complete else study.fail() for complete in outcomes]
    assert len({key(point) for point in (running, *points)}) == 13


@pytest.mark.parametrize("seed", range(3))
def test_the_group_of_a_trial_is_the_schedules(seed: int) -> None:
    study = Study(GROUPED, seed=seed, trials=45)
    points = [study.step() for _ in range(45)]
    assert [{"size": point["size"]} for point in points] == study.schedule
    assert len({key(point) for point in points}) == 45


@pytest.mark.parametrize("space", [LIVE, GROUPED], ids=["live", "grouped"])
def test_equal_seeds_propose_equal_points_and_others_do_not(space: Space) -> None:
    def run(seed: int) -> list[str]:
        study = Study(space, seed=seed)
        return [key(study.step()) for _ in range(20)]

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize("stop", [1, 5, 6, 7, 13])
def test_reopened_from_its_journal_a_study_goes_on_as_it_would_have(tmp_path: Path, stop: int) -> None:
    def storage(name: str) -> BaseStorage:
        return JournalStorage(JournalFileBackend(str(tmp_path / name)))

    undisturbed = Study(GROUPED, storage=storage("a"))
    expected = [undisturbed.step() for _ in range(20)]
    first = Study(GROUPED, storage=storage("b"))
    points = [first.step() for _ in range(stop)]
    second = Study(GROUPED, storage=storage("b"))
    assert [*points, *(second.step() for _ in range(20 - stop))] == expected


def test_a_space_of_engine_knobs_alone_takes_its_points_from_the_schedule() -> None:
    study = Study(Space((SIZE,)), trials=3)
    assert {key(study.ask()[1]) for _ in range(3)} == {key({"size": size}) for size in SIZE.values}


def test_a_name_that_is_not_in_the_space_is_a_mistake_of_ours() -> None:
    study = optuna.create_study(sampler=UnseenPointSampler(LIVE, lambda number: {}, seed=0))
    with pytest.raises(ValueError, match="x is not a knob of the space"):
        study.ask().suggest_int("x", 0, 1)


def test_it_finds_better_points_than_a_random_order_does() -> None:
    # Sums over many seeded studies: nothing here depends on the clock, so the margin cannot be missed by chance.
    budget, seeds = 16, range(25)

    def best_of(points: list[Any]) -> float:
        return min(cost(point) for point in points)

    ours = theirs = 0.0
    for seed in seeds:
        study = Study(LIVE, seed=seed)
        ours += best_of([study.step() for _ in range(budget)])
        theirs += best_of(random.Random(seed).sample(LIVE.live_points(), budget))
    assert ours < theirs
