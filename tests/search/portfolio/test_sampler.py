from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from orchestrator.search.portfolio import (
    ARM_ATTR,
    LOST_ATTR,
    NOISE_ATTR,
    START_SECONDS_ATTR,
    TRIAL_SECONDS_ATTR,
    GroupCost,
    PortfolioSampler,
)
from orchestrator.search.portfolio.trials import TrialReader
from tests.search.portfolio.conftest import GRID, POINTS, history, seconds

optuna.logging.set_verbosity(optuna.logging.WARNING)


def suggest(trial: Trial) -> dict[str, Any]:
    return {
        name: trial.suggest_categorical(name, list(levels))
        for name, levels in zip(POINTS.names, POINTS.levels, strict=True)
    }


def objective(trial: Trial) -> float:
    point = suggest(trial)
    trial.set_user_attr(NOISE_ATTR, 1e-4)
    if point["backend"] == "c" and point["fused"]:
        raise RuntimeError("out of memory")
    return seconds(point)


def params(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.get_trials(deepcopy=False)]


def test_a_study_finds_the_best_point_and_records_who_proposed_it() -> None:
    study = optuna.create_study(sampler=PortfolioSampler(GRID, seed=0))
    study.optimize(objective, n_trials=40, catch=(RuntimeError,))
    assert study.best_value == min(map(seconds, GRID))
    arms = [trial.system_attrs.get(ARM_ATTR) for trial in study.trials]
    assert arms[:8] == [None] * 8
    assert None not in arms[-20:]


def test_a_study_that_is_resumed_goes_on_as_an_undisturbed_one(tmp_path: Path) -> None:
    def opened(name: str) -> optuna.Study:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / name)))
        sampler = PortfolioSampler(GRID, seed=3)
        return optuna.create_study(study_name="s", storage=storage, sampler=sampler, load_if_exists=True)

    whole = opened("whole")
    whole.optimize(objective, n_trials=36, catch=(RuntimeError,))
    for trials in (5, 9, 7, 15):
        opened("parts").optimize(objective, n_trials=trials, catch=(RuntimeError,))
    assert params(opened("parts")) == params(whole)


def test_to_maximise_is_to_minimise_the_inverse() -> None:
    down = optuna.create_study(sampler=PortfolioSampler(GRID, seed=1))
    up = optuna.create_study(sampler=PortfolioSampler(GRID, seed=1), direction="maximize")
    down.optimize(lambda trial: seconds(suggest(trial)), n_trials=25)
    up.optimize(lambda trial: 1.0 / seconds(suggest(trial)), n_trials=25)
    assert params(up)[:12] == params(down)[:12]
    assert 1.0 / up.best_value == pytest.approx(down.best_value, rel=0.1)


def test_values_may_be_negative() -> None:
    study = optuna.create_study(sampler=PortfolioSampler(GRID, seed=1))
    study.optimize(lambda trial: seconds(suggest(trial)) - 1.5, n_trials=40)
    assert study.best_value == min(map(seconds, GRID)) - 1.5


def test_trials_that_run_side_by_side_differ() -> None:
    study = optuna.create_study(sampler=PortfolioSampler(GRID, seed=0))
    running: list[tuple[Trial, dict[str, Any]]] = []
    for _ in range(40):
        trial = study.ask()
        running.append((trial, suggest(trial)))
        if len(running) == 4:
            done, point = running.pop(1)
            study.tell(done, seconds(point))
    assert len({POINTS.row_of(one) for one in params(study)}) == 40


def test_what_each_end_of_a_trial_says() -> None:
    study = optuna.create_study(sampler=PortfolioSampler(GRID, seed=0))
    ends: list[dict[str, Any]] = [
        {"values": 2.0},
        {"state": TrialState.FAIL},
        {"state": TrialState.PRUNED},
        {"values": 3.0},
        {"state": TrialState.FAIL},
        {"values": float("inf")},
    ]
    for number, end in enumerate(ends):
        trial = study.ask()
        suggest(trial)
        if number == 3:
            trial.set_constraint("ttft", 0.1)
        if number == 4:
            trial.set_user_attr(LOST_ATTR, True)
        study.tell(trial, **end)
    running = study.ask()
    suggest(running)
    history, _, _ = TrialReader(POINTS).read(study, number=7)
    assert history.has_failed.tolist() == [False, True, True, True, True]
    assert history.losses.shape == (1, 1)
    assert history.pending.tolist() == [POINTS.row_of(running.params)]
    assert len(history.asked) == 7
    # A trial that a dead process began is not in its own way.
    assert TrialReader(POINTS).read(study, number=6)[0].pending.tolist() == []


def test_seconds_that_trials_report_replace_the_guess() -> None:
    sampler = PortfolioSampler(GRID, seed=0, cost=GroupCost(knobs=("backend",), start_s=1.0, trial_s=1.0))
    study = optuna.create_study(sampler=sampler)
    for _ in range(30):
        trial = study.ask()
        point = suggest(trial)
        trial.set_user_attr(TRIAL_SECONDS_ATTR, 1.0)
        trial.set_user_attr(START_SECONDS_ATTR, 500.0)
        study.tell(trial, seconds(point))
    _, start_s, trial_s = TrialReader(POINTS).read(study, number=30)
    assert (start_s, trial_s) == (500.0, 1.0)
    backends = [point["backend"] for point in params(study)]
    assert sum(one != other for one, other in itertools.pairwise(backends)) <= 5


def test_trials_at_other_points_are_left_alone() -> None:
    study = optuna.create_study(sampler=PortfolioSampler(GRID[:-1], seed=0))
    study.enqueue_trial(GRID[-1])
    study.optimize(lambda trial: seconds(suggest(trial)), n_trials=20)
    assert params(study)[0] == GRID[-1]
    assert GRID[-1] not in params(study)[1:]


def test_two_objectives_in_two_directions() -> None:
    def values(point: dict[str, Any]) -> tuple[float, float]:
        return seconds(point), point["rows"] / point["seqs"]

    everything = np.array([values(point) for point in GRID])
    minimise = np.array([True, False])
    front = history(list(range(len(GRID))), [0.0] * len(GRID), values=everything, minimise=minimise).front
    study = optuna.create_study(sampler=PortfolioSampler(GRID, seed=0), directions=["minimize", "maximize"])
    study.optimize(lambda trial: values(suggest(trial)), n_trials=45)
    found = {POINTS.row_of(point) for point in params(study)}
    assert len(found & set(np.flatnonzero(front).tolist())) >= 0.7 * front.sum()


def test_other_distributions_may_be_suggested() -> None:
    points = [{"rows": rows, "kind": kind} for rows in range(1, 65) for kind in ("a", "b")]
    space = {"rows": IntDistribution(1, 64), "kind": CategoricalDistribution(["b", "a"])}
    study = optuna.create_study(sampler=PortfolioSampler(points, seed=0, distributions=space))
    study.optimize(
        lambda t: abs(t.suggest_int("rows", 1, 64) - 40) + (t.suggest_categorical("kind", ["b", "a"]) == "a"),
        n_trials=30,
    )
    assert study.best_value <= 1


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="the distributions are of"):
        PortfolioSampler(GRID, distributions={"rows": IntDistribution(1, 2)})
    study = optuna.create_study(sampler=PortfolioSampler(GRID))
    with pytest.raises(ValueError, match="blocks is not a knob of the points"):
        study.ask().suggest_int("blocks", 1, 4)
