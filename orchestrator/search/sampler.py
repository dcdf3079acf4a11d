"""Optuna's own samplers over a finite list of points, without proposing a point twice, and with the engine-scope values
given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from orchestrator.search.knobs import Point
from orchestrator.search.portfolio import LOST_ATTR
from orchestrator.search.portfolio.features import Floats, Ints, Mask, Points

Kind = Literal["tpe", "gp", "nsga2", "random"]

_OPTUNAS: Mapping[str, tuple[Callable[[int, int], BaseSampler], int]] = {
    # Constant liar, Optuna 5's default, writes every try to the journal for other processes: there are none.
    "tpe": (lambda seed, startup: TPESampler(seed=seed, n_startup_trials=startup, constant_liar=False), 16),
    "gp": (lambda seed, startup: GPSampler(seed=seed, n_startup_trials=startup), 1),
    "nsga2": (lambda seed, startup: NSGAIISampler(seed=seed, population_size=max(startup, 2)), 1),
}
"""How each is made, from a seed and its start, and how often it is asked for an open point before the nearest one is
taken: a Gaussian process takes a second, and would give the same answer."""


class ScheduledSampler(BaseSampler):
    """Proposes points of a list, each once until all were measured; the engine-scope values follow a schedule.

    Optuna's sampler knows no list: its suggestion is moved to the nearest open point of the group. Where a group has
    none left, the group of the first open point is gone on with.

    Args:
        points: What may be proposed, at least one.
        kind: Optuna's sampler.
        distributions: Of each knob, over the values that occur.
        engine_knobs: Knobs whose values the schedule gives.
        schedule: Engine-scope values by trial number; the last ones for later trials too. At least one.
        seed: The proposals depend on it, on the trial's number and on the results so far, so that a resumed study
            goes on as an undisturbed one would.
        startup: Trials that are drawn at random before the sampler has its say; of ``nsga2`` the size of a population.
    """

    def __init__(
        self,
        points: Sequence[Point],
        kind: Kind,
        distributions: Mapping[str, BaseDistribution],
        *,
        engine_knobs: Sequence[str],
        schedule: Sequence[Point],
        seed: int,
        startup: int = 8,
    ) -> None:
        self._points, self._kind, self._space = Points.of(points), kind, dict(distributions)
        self._engine_knobs, self._schedule = engine_knobs, schedule
        self._seed, self._startup = seed, startup

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        rng = np.random.default_rng([self._seed, trial.number])
        rows = self._suggested(study, trial, self._open_rows(study, trial.number), rng)
        return self._points.point(int(rng.choice(rows)))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a knob of the space")

    def _suggested(self, study: Study, trial: FrozenTrial, rows: Ints, rng: np.random.Generator) -> Ints:
        """Of some points, those nearest to what Optuna's sampler suggests; all of them while it has no say."""
        free = {name: one for name, one in self._space.items() if name not in self._engine_knobs and not one.single()}
        if self._kind == "random" or not free:
            return rows
        make, tries = _OPTUNAS[self._kind]
        sampler, distance = make(int(rng.integers(2**31)), self._startup), np.zeros(len(rows))
        for _ in range(tries):
            proposal = sampler.sample_relative(study, trial, free)
            distance = self._distance(proposal, rows)
            if not proposal or distance.min() == 0.0:
                break
        return np.asarray(rows[distance == distance.min()])

    def _open_rows(self, study: Study, number: int) -> Ints:
        """Points that may be proposed for a trial."""
        others = [other for other in study.get_trials(deepcopy=False) if other.number != number]
        is_open = np.ones(self._points.size, dtype=bool)
        # Points whose trials were lost come last; when every point was measured, all of them are open again.
        for seen in (others, [one for one in others if not one.user_attrs.get(LOST_ATTR)], []):
            rows = [self._points.row_of(one.params) for one in seen]
            is_open[:] = True
            is_open[np.array([row for row in rows if row is not None], dtype=np.int32)] = False
            if is_open.any():
                break
        in_group = is_open & self._in_group(self._schedule[min(number, len(self._schedule) - 1)])
        if not in_group.any():
            in_group = is_open & self._in_group(self._points.point(int(np.argmax(is_open))))
        return np.flatnonzero(in_group).astype(np.int32)

    def _in_group(self, group: Point) -> Mask:
        mask = np.ones(self._points.size, dtype=bool)
        for name in self._engine_knobs:
            mask &= self._points.has(self._points.names.index(name), group[name])
        return mask

    def _distance(self, proposal: Mapping[str, Any], rows: Ints) -> Floats:
        """How far points are from a suggestion: knobs that differ, then steps between their values."""
        distance = np.zeros(len(rows))
        for name, value in proposal.items():
            k = self._points.names.index(name)
            is_equal = self._points.has(k, value)
            distance += ~is_equal[rows]
            if self._points.is_ordered[k]:
                code = self._points.codes[np.argmax(is_equal), k]
                distance += abs(self._points.codes[rows, k] - code) / (2.0 * len(self._points.levels[k]))
        return distance
