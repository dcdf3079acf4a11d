"""The trials of a study: which one comes next, and what it told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import optuna
from optuna.trial import FrozenTrial, TrialState

from orchestrator.records.store import Retrying
from orchestrator.search import Point
from orchestrator.search.memory import MEMORY_ARM
from orchestrator.search.portfolio import (
    ARM_ATTR,
    GAIN_ATTR,
    LOST_ATTR,
    NOISE_ATTR,
    START_SECONDS_ATTR,
    TRIAL_SECONDS_ATTR,
)
from orchestrator.sweep.proposals import Proposals
from orchestrator.sweep.search_section import StopSection

T = TypeVar("T")

_LISTED_CONSTRAINTS = "constraints"
"""System attribute of a trial: its constraints as Optuna 4 wrote them, which is all that its dashboard 0.21 reads."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a trial tells the sampler.

    Attributes:
        ratios: To the baseline, one for each objective; empty when the trial gave no number.
        log_variance: Variance of the logarithm of a ratio, as the blocks measured it.
        broken: What ruled the point out, or how it failed: the name of a constraint that it breaks. None for a trial
            that is complete, and for one that says nothing of its point: it was lost, or its baseline failed.
        trial_s: Seconds of the trial in a warm engine; None where they decide nothing.
        start_s: Seconds of engine starts in it; None likewise, or when there was none.
    """

    ratios: Sequence[float] = ()
    log_variance: float = 0.0
    broken: str | None = None
    trial_s: float | None = None
    start_s: float | None = None


class TrialBook:
    """Hands out the study's trials, each number once, those first that an earlier process began and never told.

    Several trials may be in flight, handed out and not told yet. The caller makes one call at a time, and is the only
    one that writes the study: what the book itself takes for a call does not grow with the number of trials. A call
    that fails in the storage can be made again.

    Args:
        stop: Ends the search before its last trial.
        retrying: Makes each call again while the storage does not answer; None takes the first answer.

    Attributes:
        ended: Why the search ended before its last trial; None as long as it has not.
    """

    def __init__(
        self,
        study: optuna.Study,
        proposals: Proposals,
        trials: int,
        stop: StopSection | None = None,
        retrying: Retrying | None = None,
    ) -> None:
        self._study, self._choices, self._trials, self._stop = study, proposals.choices, trials, stop
        self._points, self._retrying = proposals.points, retrying
        self._names = tuple(proposals.choices)
        self._closed: set[str] = set()
        self._seen: set[str] = set()
        self._asked: dict[int, optuna.Trial] = {}
        self._in_flight: dict[int, str] = {}
        self.ended: str | None = None
        self._number, self._begun, self._is_read = 0, deque[int](), True
        for trial in self._call(self._read):
            if trial.state.is_finished():
                self._close(self._key(trial.params), is_lost=LOST_ATTR in trial.user_attrs)

    def finished(self) -> list[FrozenTrial]:
        """Trials that were told, by number."""
        known = self._call(lambda: self._study.get_trials(deepcopy=False))
        return [trial for trial in known if trial.state.is_finished()]

    def next(self) -> tuple[int, Point] | None:
        """Number and point of the next trial. None when there is none to hand out; while trials are in flight, ask
        again after the next one was told: a point whose trial is lost gets another."""
        return self._call(self._next)

    def tell(self, number: int, told: Told) -> None:
        """A trial that was handed out has ended. What gave no number is never scored: a point that is ruled out or
        failed is told as one that breaks a constraint."""
        self._call(lambda: self._tell(self._asked[number], told))
        del self._asked[number]
        self._close(self._in_flight.pop(number), is_lost=not told.ratios and told.broken is None)

    def _call(self, call: Callable[[], T]) -> T:
        return call() if self._retrying is None else self._retrying.call(call)

    def _next(self) -> tuple[int, Point] | None:
        if not self._is_read:
            self._read()
        # A call that fails may have begun a trial all the same.
        self._is_read = False
        asked = self._resumed() or self._new()
        self._is_read = True
        return asked

    def _read(self) -> Sequence[FrozenTrial]:
        """The study's trials: how many they are, and which were begun and not handed out."""
        known = self._study.get_trials(deepcopy=False)
        self._number = len(known)
        self._begun = deque(
            trial._trial_id for trial in known if not trial.state.is_finished() and trial.number not in self._asked
        )
        return known

    def _resumed(self) -> tuple[int, Point] | None:
        if not self._begun:
            return None
        asked = self._handed_out(optuna.Trial(self._study, self._begun[0]))
        self._begun.popleft()
        return asked

    def _new(self) -> tuple[int, Point] | None:
        if self._is_over():
            return None
        asked = self._handed_out(self._study.ask())
        self._number += 1
        return asked

    def _handed_out(self, trial: optuna.Trial) -> tuple[int, Point]:
        point = self._point(trial)
        self._asked[trial.number], self._in_flight[trial.number] = trial, self._key(point)
        return trial.number, point

    def _point(self, trial: optuna.Trial) -> Point:
        stored = dict(trial.params)
        if 0 < len(stored) < len(self._names):
            # Whoever began it died between its knobs. If others have ended since, the sampler would now choose another
            # point, and a mixture of the two may be one that no constraint allows.
            proposed = trial.relative_params
            if not _agrees(proposed, stored):
                agreeing = [point for point in self._points if _agrees(point, stored)]
                still_open = [point for point in agreeing if self._is_free(self._key(point))]
                trial._relative_params = dict((still_open or agreeing or [proposed])[0])
        return {name: trial.suggest_categorical(name, choices) for name, choices in self._choices.items()}

    def _tell(self, trial: optuna.Trial, told: Told) -> None:
        if self._study._storage.get_trial(trial._trial_id).state.is_finished():
            return  # an earlier try, whose answer did not arrive
        for name, value in ((TRIAL_SECONDS_ATTR, told.trial_s), (START_SECONDS_ATTR, told.start_s)):
            if value is not None:
                trial.set_user_attr(name, value)
        if told.ratios:
            trial.set_user_attr(NOISE_ATTR, told.log_variance)
            self._study.tell(trial, list(told.ratios))
        elif told.broken is not None:
            self._break(trial, told.broken)
            # Optuna's samplers look at the constraints of pruned trials, and not at all at failed ones.
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.set_user_attr(LOST_ATTR, True)
            self._study.tell(trial, state=TrialState.FAIL)

    def _close(self, key: str, *, is_lost: bool) -> None:
        """A point was measured. One whose trial was lost stays open, but not for a third trial: each loses engines."""
        if not is_lost or key in self._seen:
            self._closed.add(key)
        self._seen.add(key)

    def _break(self, trial: optuna.Trial, name: str) -> None:
        if name not in trial.constraints:
            trial.set_constraint(name, 1.0)
        self._study._storage.set_trial_system_attr(trial._trial_id, _LISTED_CONSTRAINTS, [1.0])

    def _is_over(self) -> bool:
        """Whether no further trial may begin now; sets ``ended`` if that will not change."""
        if self._number >= self._trials:
            return True
        if self._in_flight and not self._is_any_left(self._closed, self._in_flight.values()):
            return True
        self.ended = self._why_ended()
        return self.ended is not None

    def _why_ended(self) -> str | None:
        if self._number >= self._trials:
            return None
        if not self._is_any_left(self._closed):
            return "every point was measured"
        if self._stop is None:
            return None
        # What earlier runs proposed says nothing of the gain.
        known = self._study.get_trials(deepcopy=False)
        proposed = [trial for trial in known if trial.system_attrs.get(ARM_ATTR) != MEMORY_ARM]
        gains = [trial.system_attrs.get(GAIN_ATTR) for trial in proposed[-self._stop.after :]]
        is_over = len(gains) == self._stop.after and all(
            gain is not None and gain < self._stop.expected_gain for gain in gains
        )
        if not is_over:
            return None
        share = f"{self._stop.expected_gain * 100:.2g} %"
        return f"less than {share} of the best ratio was to be gained, {len(gains)} times in a row"

    def _is_free(self, key: str) -> bool:
        return key not in self._closed and key not in self._in_flight.values()

    def _is_any_left(self, *taken: Collection[str]) -> bool:
        """Whether there is a point outside of these. Mostly their number tells."""
        if sum(map(len, taken)) < len(self._points):
            return True
        every = {key for keys in taken for key in keys}
        return any(self._key(point) not in every for point in self._points)

    def _key(self, point: Point) -> str:
        """Equal for points that are the same: 1 and True, or 1 and 1.0, are not."""
        return repr([point.get(name) for name in self._names])


def _agrees(point: Point, stored: Point) -> bool:
    return all(point.get(name) == value for name, value in stored.items())
