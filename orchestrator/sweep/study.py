"""The Optuna study of a run: kept in a journal, picked up where a dead process left it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from orchestrator.errors import ChunksmithError
from orchestrator.measurement import Direction
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

_LISTED_CONSTRAINTS = "constraints"
"""System attribute of a trial: its constraints as Optuna 4 wrote them, which is all that its dashboard 0.21 reads."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a trial tells the sampler.

    Attributes:
        ratios: To the baseline, one for each objective; empty when the trial gave no number.
        log_variance: Variance of the logarithm of a ratio, as the blocks measured it.
        broken: What ruled the point out, or how it failed: the name of a constraint that it breaks. None for a trial
            that is complete or was lost, which says nothing of its point.
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

    Args:
        stop: Ends the search before its last trial.

    Attributes:
        ended: Why the search ended before its last trial; None as long as it has not.
    """

    def __init__(self, study: optuna.Study, proposals: Proposals, trials: int, stop: StopSection | None = None) -> None:
        self._study, self._choices, self._trials, self._stop = study, proposals.choices, trials, stop
        self._open = {_key(point) for point in proposals.points}
        self._seen: set[str] = set()
        for trial in self.finished():
            self._close(trial.params, is_lost=LOST_ATTR in trial.user_attrs)
        self._asked: dict[int, optuna.Trial] = {}
        self.ended: str | None = None

    def finished(self) -> list[FrozenTrial]:
        """Trials that were told, by number."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]

    def next(self) -> tuple[int, Point] | None:
        """Number and point of the next trial; None when all of them were told, or the search has ended."""
        known = self._study.get_trials(deepcopy=False)
        begun = [trial for trial in known if not trial.state.is_finished()]
        if begun:
            trial = optuna.Trial(self._study, begun[0]._trial_id)
        else:
            self.ended = self._why_ended(known)
            if self.ended is not None or len(known) >= self._trials:
                return None
            trial = self._study.ask()
        self._asked[trial.number] = trial
        point = {name: trial.suggest_categorical(name, choices) for name, choices in self._choices.items()}
        return trial.number, point

    def tell(self, number: int, told: Told) -> None:
        """A trial that was handed out has ended. What gave no number is never scored: a point that is ruled out or
        failed is told as one that breaks a constraint."""
        trial = self._asked.pop(number)
        for name, value in ((TRIAL_SECONDS_ATTR, told.trial_s), (START_SECONDS_ATTR, told.start_s)):
            if value is not None:
                trial.set_user_attr(name, value)
        self._close(trial.params, is_lost=not told.ratios and told.broken is None)
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

    def _close(self, point: Point, *, is_lost: bool) -> None:
        """A point was measured. One whose trial was lost stays open, but not for a third trial: each loses engines."""
        key = _key(point)
        if not is_lost or key in self._seen:
            self._open.discard(key)
        self._seen.add(key)

    def _break(self, trial: optuna.Trial, name: str) -> None:
        if name not in trial.constraints:
            trial.set_constraint(name, 1.0)
        self._study._storage.set_trial_system_attr(trial._trial_id, _LISTED_CONSTRAINTS, [1.0])

    def _why_ended(self, known: Sequence[FrozenTrial]) -> str | None:
        if len(known) >= self._trials:
            return None
        if not self._open:
            return "every point was measured"
        if self._stop is None:
            return None
        # What earlier runs proposed says nothing of the gain.
        proposed = [trial for trial in known if trial.system_attrs.get(ARM_ATTR) != MEMORY_ARM]
        gains = [trial.system_attrs.get(GAIN_ATTR) for trial in proposed[-self._stop.after :]]
        is_over = len(gains) == self._stop.after and all(
            gain is not None and gain < self._stop.expected_gain for gain in gains
        )
        if not is_over:
            return None
        share = f"{self._stop.expected_gain * 100:.2g} %"
        return f"less than {share} of the best ratio was to be gained, {len(gains)} times in a row"


def open_study(journal: Path, *, name: str, proposals: Proposals, directions: Sequence[Direction]) -> optuna.Study:
    """Create the study, or load it if the journal holds it.

    The caller holds the run's lock: nobody else writes the journal.

    Args:
        journal: Absolute path. With a relative one, Optuna 5.0 waits for ever on a lock whose holder was killed.
        directions: Of each objective.

    Raises:
        ChunksmithError: The file is no journal, or its trials are of another space.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not journal.is_absolute():
        raise ValueError(f"the journal's path must be absolute, got {journal}")
    repair_journal(journal)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=proposals.sampler,
        directions=list(directions),
        load_if_exists=True,
    )
    for trial in study.get_trials(deepcopy=False):
        for knob, distribution in trial.distributions.items():
            if getattr(distribution, "choices", None) != proposals.choices.get(knob):
                raise ChunksmithError(
                    f"{journal}: trial {trial.number} chose {knob} from other values than the spec gives now; go on "
                    "with the Chunksmith that began the run (see provenance.json)"
                )
    return study


def repair_journal(journal: Path) -> None:
    """Undo what a killed or starved writer left: a torn last line (Optuna could not read on after it) and a stale
    lock."""
    lock = journal.with_name(journal.name + ".lock")
    if lock.is_symlink() or lock.exists():
        lock.unlink()
    if not journal.exists():
        return
    with journal.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return
        if whole == 0 and len(content) > 1_000_000:
            raise ChunksmithError(f"{journal}: is not an Optuna journal: it has no line end")
        file.truncate(whole)
        os.fsync(file.fileno())


def _key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)
