"""The portfolio as a sampler of Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from orchestrator.search.portfolio.costs import GroupCost, GroupCosts
from orchestrator.search.portfolio.features import Points, Value
from orchestrator.search.portfolio.proposer import ARMS, START, Proposer
from orchestrator.search.portfolio.trials import ARM_ATTR, GAIN_ATTR, TrialReader


class PortfolioSampler(BaseSampler):
    """Proposes points of a finite list, each once until all were tried.

    For few, dear evaluations over mixed knobs, many of which fail for reasons that no one wrote down. A Gaussian
    process, a forest and a local search share what was measured and take turns; the one that improves gets more of
    them. A trial that fails, is pruned or breaks an Optuna constraint teaches where trials fail, and is never scored.

    A study may have one objective or several (expected hypervolume), to be minimised or maximised; one that is
    positive throughout is taken on the log scale. Trials that run are taken into account. A proposal depends on the
    seed, the trial's number and the trials so far, and on nothing else: a study that is resumed goes on as an
    undisturbed one. User attributes of a trial that are read are ``NOISE_ATTR``, ``LOST_ATTR``, ``TRIAL_SECONDS_ATTR``
    and ``START_SECONDS_ATTR``.

    Args:
        points: What may be proposed: every valid point, or a large sample of them. All have the same knobs, with
            values that are numbers, strings, booleans or None; numbers have an order.
        seed: At least 0.
        distributions: The distributions of the knobs that the objective function suggests; categorical ones over the
            values that occur, in ascending order, by default.
        cost: Seconds of a trial and of an engine start; with it, the gain per second decides.
        start: Measured points before a model has its say, at least 2.
        records_gain: Write the expected gain of going on to each trial, as ``GAIN_ATTR``. One objective only.

    Raises:
        ValueError: ``points`` are empty, differ in their knobs or repeat one, or an argument is out of its range.
    """

    def __init__(
        self,
        points: Sequence[Mapping[str, Value]],
        *,
        seed: int = 0,
        distributions: Mapping[str, BaseDistribution] | None = None,
        cost: GroupCost | None = None,
        start: int = START,
        records_gain: bool = False,
    ) -> None:
        self._records_gain = records_gain
        self._points = Points.of(points)
        names = self._points.names
        if distributions is not None and set(distributions) != set(names):
            raise ValueError(f"the distributions are of {sorted(distributions)}, the points of {sorted(names)}")
        self._space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(levels) for name, levels in zip(names, self._points.levels, strict=True)
        }
        self._space.update(distributions or {})
        self._costs = GroupCosts(self._points, cost) if cost is not None else None
        self._reader = TrialReader(self._points)
        self._proposer = Proposer(self._points, seed=seed, start=start)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        history, start_s, trial_s = self._reader.read(study, trial.number)
        log_cost = self._costs.log_ratio(history.asked, start_s, trial_s) if self._costs is not None else None
        proposal = self._proposer.propose(history, trial.number, log_cost)
        if proposal.arm is not None:
            # Where Optuna's own samplers keep such things: the next process has to know it too.
            study._storage.set_trial_system_attr(trial._trial_id, ARM_ATTR, ARMS[proposal.arm])
        if self._records_gain and (gain := self._proposer.expected_gain(history)) is not None:
            study._storage.set_trial_system_attr(trial._trial_id, GAIN_ATTR, gain)
        return self._points.point(proposal.row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a knob of the points ({', '.join(self._points.names)})")
