"""The Optuna study of a run: kept in a journal, picked up where a dead process left it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from orchestrator.errors import ChunksmithError
from orchestrator.measurement import Direction
from orchestrator.search import Point, Space
from orchestrator.search.sampler import UnseenPointSampler


class TrialBook:
    """Hands out the study's trials, each number once, those first that an earlier process began and never told."""

    def __init__(self, study: optuna.Study, space: Space, trials: int) -> None:
        self._study, self._space, self._trials = study, space, trials

    def finished(self) -> list[FrozenTrial]:
        """Trials that were told, by number."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]

    def next(self) -> tuple[int, Point] | None:
        """Number and point of the next trial; None when all of them were told."""
        known = self._study.get_trials(deepcopy=False)
        begun = [trial for trial in known if not trial.state.is_finished()]
        if begun:
            trial = optuna.Trial(self._study, begun[0]._trial_id)
        elif len(known) < self._trials:
            trial = self._study.ask()
        else:
            return None
        point = {knob.name: trial.suggest_categorical(knob.name, list(knob.values)) for knob in self._space.knobs}
        return trial.number, point

    def tell_ratio(self, number: int, ratio: float) -> None:
        """The trial is complete."""
        self._study.tell(number, ratio)

    def tell_without_value(self, number: int, *, infeasible: bool) -> None:
        """The trial has no value: pruned when arithmetic ruled its point out, else failed. It is never scored."""
        self._study.tell(number, state=TrialState.PRUNED if infeasible else TrialState.FAIL)


def open_study(
    journal: Path,
    *,
    name: str,
    space: Space,
    group_of: Callable[[int], Point],
    direction: Direction,
    seed: int,
) -> optuna.Study:
    """Create the study, or load it if the journal holds it.

    The caller holds the run's lock: nobody else writes the journal.

    Args:
        journal: Absolute path. With a relative one, Optuna 5.0 waits for ever on a lock whose holder was killed.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not journal.is_absolute():
        raise ValueError(f"the journal's path must be absolute, got {journal}")
    repair_journal(journal)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    sampler = UnseenPointSampler(space, group_of, seed=seed)
    return optuna.create_study(
        study_name=name, storage=storage, sampler=sampler, direction=direction, load_if_exists=True
    )


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
