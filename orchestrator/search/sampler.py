"""Optuna's TPE over a finite space, without proposing a point twice, and with the engine-scope values given."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from orchestrator.search.knobs import Point, Space

_TRIES = 16
"""How often TPE is asked for a point that was not measured before; then one of those is drawn at random."""


class UnseenPointSampler(BaseSampler):
    """Proposes live values; the engine-scope values of a trial are fixed by its number.

    Args:
        group_of: Engine-scope values of a trial, by trial number.
        seed: The proposals depend on it, on the trial's number and on the results so far, so that a resumed study
            goes on as an undisturbed one would.
        startup_trials: Trials of a group that are drawn at random before TPE has its say.
    """

    def __init__(self, space: Space, group_of: Callable[[int], Point], *, seed: int, startup_trials: int = 6) -> None:
        self._space, self._group_of, self._seed = space, group_of, seed
        self._startup_trials = startup_trials

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {knob.name: CategoricalDistribution(list(knob.values)) for knob in self._space.knobs}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        group = dict(self._group_of(trial.number))
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        seen = {_key(other.params) for other in others}
        unseen = [live for live in self._space.live_points() if _key({**group, **live}) not in seen]
        # When every point of the group was measured, all of them are open again.
        open_points = unseen or self._space.live_points()
        rng = random.Random(f"{self._seed}/{trial.number}")
        live_space = {name: search_space[name] for name in self._space.names("live")}
        if len(others) >= self._startup_trials and live_space:
            # Constant liar, Optuna 5's default, writes every try to the journal for other processes: there are none.
            seed = rng.getrandbits(31)
            tpe = TPESampler(seed=seed, n_startup_trials=self._startup_trials, constant_liar=False)
            for _ in range(_TRIES):
                proposal = tpe.sample_relative(study, trial, live_space)
                if proposal and any(_key(proposal) == _key(live) for live in open_points):
                    return {**group, **proposal}
        return {**group, **rng.choice(open_points)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a knob of the space")


def _key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)
