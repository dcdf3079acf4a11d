"""Memory as a sampler of Optuna: a wrapper around another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from orchestrator.search.memory.advisor import HORIZON, Advisor
from orchestrator.search.memory.earlier import EarlierRun
from orchestrator.search.portfolio.costs import GroupCost, GroupCosts
from orchestrator.search.portfolio.features import Points, Value
from orchestrator.search.portfolio.trials import ARM_ATTR, TrialReader

MEMORY_ARM = "memory"
"""What ``ARM_ATTR`` of a trial says that memory proposed."""


class MemorySampler(BaseSampler):
    """Lets earlier runs propose some of the trials, and another sampler the others.

    The earlier runs may be of another model, GPU or vLLM version, and share only some of the knobs. The first trials
    try what they liked best, beside what the other sampler proposes; from then on they have a say as far as they rank
    what was measured here, and none while they do so no better than chance. A proposal depends on the seed, the trial's
    number and the trials so far, as with ``PortfolioSampler``. For one objective; numbers are on the scale of the
    study, and only the order of what the earlier runs measured counts.

    Args:
        inner: The other sampler, one that proposes whole points. It sees the trials that memory proposed as its own.
        points: What may be proposed, as ``PortfolioSampler`` has them.
        runs: At least one; each shares a knob with the points.
        seed: At least 0.
        cost: As for ``PortfolioSampler``: with it, the gain per second decides.

    Raises:
        ValueError: There is no run, one shares no knob, or ``points`` or ``cost`` are not what they should be.
    """

    def __init__(
        self,
        inner: BaseSampler,
        points: Sequence[Mapping[str, Value]],
        runs: Sequence[EarlierRun],
        *,
        seed: int = 0,
        cost: GroupCost | None = None,
    ) -> None:
        self._inner = inner
        self._points = Points.of(points)
        self._reader = TrialReader(self._points)
        self._advisor = Advisor(self._points, runs, seed=seed)
        self._costs = GroupCosts(self._points, cost) if cost is not None else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if len(study.directions) > 1:
            raise ValueError("earlier runs can only advise a study with one objective")
        if missing := [name for name in self._points.names if name not in search_space]:
            raise ValueError(f"the inner sampler has to propose whole points, and leaves {missing[0]} out")
        if trial.number < HORIZON:
            history, start_s, trial_s = self._reader.read(study, trial.number)
            log_cost = self._costs.log_ratio(history.asked, start_s, trial_s) if self._costs is not None else None
            row = self._advisor.propose(history, trial.number, log_cost)
            if row is not None:
                study._storage.set_trial_system_attr(trial._trial_id, ARM_ATTR, MEMORY_ARM)
                return self._points.point(row)
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._inner.reseed_rng()
