"""The trials of an Optuna study as a history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from orchestrator.search.portfolio.features import Floats, Ints, Points
from orchestrator.search.portfolio.history import History
from orchestrator.search.portfolio.proposer import ARMS

NOISE_ATTR = "log_ratio_variance"
"""User attribute of a trial: variance of the logarithm of its value, as it was measured."""
LOST_ATTR = "lost"
"""User attribute of a failed trial: true when the infrastructure failed it. It then says nothing of its point."""
TRIAL_SECONDS_ATTR = "trial_seconds"
"""User attribute: seconds of the trial in a warm engine."""
START_SECONDS_ATTR = "start_seconds"
"""User attribute: seconds of the engine start that the trial needed; only on a trial that needed one."""
ARM_ATTR = "portfolio:arm"
"""System attribute: the arm that proposed the trial."""
GAIN_ATTR = "portfolio:expected_gain"
"""System attribute: what could be expected of the best open point when the trial was proposed, as a share of the best
value so far; absent in the start."""


@dataclass(frozen=True)
class _Told:
    """What finished trials told, and what all were asked, as arrays of one length; ``tells`` masks the former."""

    rows: Ints
    tells: NDArray[np.bool_]
    values: Floats
    noise: Floats
    arms: NDArray[np.int8]
    seconds: Floats
    start_seconds: Floats

    def __add__(self, other: _Told) -> _Told:
        return _Told(*(np.concatenate([getattr(self, one.name), getattr(other, one.name)]) for one in fields(self)))


class TrialReader:
    """Reads a study's trials. Those that finished are read once."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._settled: _Told | None = None
        self._count = 0
        self._study: tuple[str, int] | None = None

    def read(self, study: Study, number: int) -> tuple[History, float | None, float | None]:
        """The history before a trial of a study, and the median seconds of engine starts and of trials.

        Trials at points that are not in the list are left out, and so are those that wait, and ones that were lost.
        """
        trials = study.get_trials(deepcopy=False)
        identity = (study.study_name, id(study._storage))
        if self._settled is None or identity != self._study or len(trials) < self._count:
            self._study, self._count = identity, 0
            self._settled = self._told([], len(study.directions))
        end = self._count
        while end < len(trials) and trials[end].state.is_finished():
            end += 1
        if end > self._count:
            self._settled = self._settled + self._told(trials[self._count : end], len(study.directions))
            self._count = end
        later = [trial for trial in trials[end:] if trial.number != number]
        told = self._settled + self._told(later, len(study.directions))
        running = [self._points.row_of(trial.params) for trial in later if trial.state == TrialState.RUNNING]
        history = History(
            tried=told.rows[told.tells],
            values=told.values[told.tells],
            noise=told.noise[told.tells],
            arms=told.arms[told.tells],
            minimise=np.array([direction == StudyDirection.MINIMIZE for direction in study.directions]),
            pending=np.array([row for row in running if row is not None], dtype=np.int32),
            asked=told.rows,
        )
        return history, _median(told.start_seconds), _median(told.seconds)

    def _told(self, trials: Sequence[FrozenTrial], objectives: int) -> _Told:
        read = [(row, trial) for trial in trials if (row := self._points.row_of(trial.params)) is not None]
        values = [_values(trial) for _, trial in read]
        attrs = [trial.user_attrs for _, trial in read]
        arms = [trial.system_attrs.get(ARM_ATTR) for _, trial in read]
        return _Told(
            rows=np.array([row for row, _ in read], dtype=np.int32),
            tells=np.array([trial.state.is_finished() and not _is_lost(trial) for _, trial in read], dtype=bool),
            values=np.array([one or [math.nan] * objectives for one in values], dtype=float).reshape(-1, objectives),
            noise=np.array([one.get(NOISE_ATTR, 0.0) for one in attrs], dtype=float),
            arms=np.array([ARMS.index(arm) if arm in ARMS else -1 for arm in arms], dtype=np.int8),
            seconds=np.array([one.get(TRIAL_SECONDS_ATTR, math.nan) for one in attrs], dtype=float),
            start_seconds=np.array([one.get(START_SECONDS_ATTR, math.nan) for one in attrs], dtype=float),
        )


def _values(trial: FrozenTrial) -> list[float] | None:
    """Values of a trial that is complete, finite and within its constraints."""
    if trial.state != TrialState.COMPLETE or any(excess > 0 for excess in trial.constraints.values()):
        return None
    return list(trial.values) if all(math.isfinite(value) for value in trial.values) else None


def _is_lost(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and bool(trial.user_attrs.get(LOST_ATTR))


def _median(seconds: Floats) -> float | None:
    known = seconds[~np.isnan(seconds)]
    return float(np.median(known)) if len(known) else None
