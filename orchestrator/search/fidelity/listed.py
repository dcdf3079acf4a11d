"""An Optuna sampler that proposes the points of a list: those that a ladder has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from orchestrator.engines import KnobValue
from orchestrator.search.knobs import Point


class ListedPoints(BaseSampler):
    """Trial ``n`` gets point ``n`` of a list.

    Args:
        points: At least as many as the study has trials.
        choices: The values of each knob that occur among them.
    """

    def __init__(self, points: Sequence[Point], choices: Mapping[str, Sequence[KnobValue]]) -> None:
        self._points = list(points)
        self._space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(list(values)) for name, values in choices.items()
        }

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if trial.number >= len(self._points):
            raise ValueError(f"trial {trial.number} has no point: the list holds {len(self._points)}")
        return dict(self._points[trial.number])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a knob of the points ({', '.join(self._space)})")
