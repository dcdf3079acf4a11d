from __future__ import annotations

import optuna
import pytest

from orchestrator.engines import KnobValue
from orchestrator.search import Point
from orchestrator.search.fidelity.listed import ListedPoints

POINTS: list[Point] = [{"rows": 512, "order": None}, {"rows": 256, "order": "width"}]
CHOICES: dict[str, tuple[KnobValue, ...]] = {"rows": (256, 512), "order": (None, "width")}


def test_each_trial_gets_its_point_whatever_was_told() -> None:
    study = optuna.create_study(sampler=ListedPoints(POINTS, CHOICES))
    for expected in POINTS:
        trial = study.ask()
        found = {name: trial.suggest_categorical(name, list(values)) for name, values in CHOICES.items()}
        assert found == expected
        study.tell(trial, 1.0)
    with pytest.raises(ValueError, match="trial 2 has no point: the list holds 2"):
        study.ask().suggest_categorical("rows", [256, 512])


def test_another_knob_is_refused() -> None:
    study = optuna.create_study(sampler=ListedPoints(POINTS, CHOICES))
    with pytest.raises(ValueError, match=r"heads is not a knob of the points \(rows, order\)"):
        study.ask().suggest_int("heads", 1, 2)
