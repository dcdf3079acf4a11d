from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial

from orchestrator.search.memory import MEMORY_ARM, EarlierRun, MemorySampler
from orchestrator.search.portfolio import ARM_ATTR, GroupCost, PortfolioSampler
from tests.search.memory.conftest import alike, earlier, inverted
from tests.search.portfolio.conftest import GRID, POINTS, seconds

optuna.logging.set_verbosity(optuna.logging.WARNING)


def sampler(run: EarlierRun, seed: int = 0, **more: Any) -> MemorySampler:
    return MemorySampler(PortfolioSampler(GRID, seed=seed), GRID, [run], seed=seed, **more)


def suggest(trial: Trial) -> dict[str, Any]:
    return {
        name: trial.suggest_categorical(name, list(levels))
        for name, levels in zip(POINTS.names, POINTS.levels, strict=True)
    }


def objective(trial: Trial) -> float:
    return seconds(suggest(trial))


def arms(study: optuna.Study) -> list[str | None]:
    return [trial.system_attrs.get(ARM_ATTR) for trial in study.get_trials(deepcopy=False)]


def test_a_good_memory_finds_the_best_point_within_the_first_trials() -> None:
    study = optuna.create_study(sampler=sampler(earlier(alike, every=3)))
    study.optimize(objective, n_trials=16)
    assert study.best_value == min(map(seconds, GRID))
    assert arms(study).count(MEMORY_ARM) >= 4


def test_a_bad_memory_leaves_the_study_to_the_other_sampler() -> None:
    study = optuna.create_study(sampler=sampler(earlier(inverted)))
    study.optimize(objective, n_trials=40)
    assert study.best_value == min(map(seconds, GRID))
    assert arms(study).count(MEMORY_ARM) <= 3
    assert MEMORY_ARM not in arms(study)[8:]


def test_to_maximise_is_to_minimise_the_inverse() -> None:
    study = optuna.create_study(sampler=sampler(earlier(alike, every=3)), direction="maximize")
    study.optimize(lambda trial: 1.0 / objective(trial), n_trials=16)
    assert 1.0 / study.best_value == pytest.approx(min(map(seconds, GRID)))


def test_a_study_that_is_resumed_goes_on_as_an_undisturbed_one(tmp_path: Path) -> None:
    def opened(name: str) -> optuna.Study:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / name)))
        own = sampler(earlier(alike, every=5), seed=3)
        return optuna.create_study(study_name="s", storage=storage, sampler=own, load_if_exists=True)

    whole = opened("whole")
    whole.optimize(objective, n_trials=24)
    for trials in (3, 9, 5, 7):
        opened("parts").optimize(objective, n_trials=trials)
    parts = opened("parts")
    assert [one.params for one in parts.trials] == [one.params for one in whole.trials]
    assert arms(parts) == arms(whole)


def test_what_an_engine_start_costs_counts_for_memory_too() -> None:
    cost = GroupCost(knobs=("backend",), start_s=1e9, trial_s=1.0)
    study = optuna.create_study(sampler=sampler(earlier(alike, every=3), cost=cost))
    study.optimize(objective, n_trials=12)
    own = [one for one in study.trials if one.system_attrs.get(ARM_ATTR) == MEMORY_ARM]
    assert own
    assert all(one.params["backend"] == study.trials[one.number - 1].params["backend"] for one in own)


def test_errors_name_what_is_wrong() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler(earlier(alike)))
    with pytest.raises(ValueError, match="one objective"):
        study.ask().suggest_categorical("rows", list(POINTS.levels[0]))
    part = MemorySampler(optuna.samplers.RandomSampler(seed=0), GRID, [earlier(alike)])
    with pytest.raises(ValueError, match="whole points"):
        optuna.create_study(sampler=part).ask().suggest_categorical("rows", list(POINTS.levels[0]))
