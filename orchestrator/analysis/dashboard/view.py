"""A study as Optuna's storage shows it, with the overlay of its run."""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from copy import deepcopy as deep
from typing import Any, NoReturn

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from orchestrator.analysis.dashboard.overlay import EMPTY, Overlay, read_overlay, version
from orchestrator.records import RunFolder


class ReadOnlyError(RuntimeError):
    """Somebody tried to write through a view."""


class RunView(BaseStorage):
    """Reads one study through another storage and adds what the records of its run know; refuses to write.

    A sweep may be writing both. The records are read again when one of their folders has changed. Other studies in the
    storage are not shown.

    Args:
        storage: Where the study is.
        run: The run.
        study_id: The study's identifier in the storage.
    """

    def __init__(self, storage: BaseStorage, run: RunFolder, study_id: int) -> None:
        self._storage, self._run, self._study_id = storage, run, study_id
        self._lock = threading.Lock()
        self._version, self._overlay = "", EMPTY

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._storage.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return {**self._storage.get_study_system_attrs(study_id), **self._read(study_id).study}

    def get_all_studies(self) -> list[FrozenStudy]:
        studies = [deep(one) for one in self._storage.get_all_studies() if one._study_id == self._study_id]
        for study in studies:
            study.system_attrs = self.get_study_system_attrs(study._study_id)
        return studies

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._with(self._read(self._study_id), self._storage.get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        overlay = self._read(study_id)
        return [self._with(overlay, trial) for trial in self._storage.get_all_trials(study_id, deepcopy, states)]

    def remove_session(self) -> None:
        self._storage.remove_session()

    def _read(self, study_id: int) -> Overlay:
        with self._lock:
            now = version(self._run)
            if now != self._version:
                trials = self._storage.get_all_trials(study_id, deepcopy=False)
                self._overlay = read_overlay(self._run, {trial.number: trial._trial_id for trial in trials})
                self._version = now
            return self._overlay

    @staticmethod
    def _with(overlay: Overlay, trial: FrozenTrial) -> FrozenTrial:
        # A copy: the storage hands out its own objects.
        trial = deep(trial)
        trial._user_attrs = {**trial._user_attrs, **overlay.user.get(trial.number, {})}
        trial._system_attrs = {**trial._system_attrs, **overlay.system.get(trial.number, {})}
        return trial

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> NoReturn:
        raise ReadOnlyError

    def delete_study(self, study_id: int) -> NoReturn:
        raise ReadOnlyError

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        raise ReadOnlyError

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        raise ReadOnlyError

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> NoReturn:
        raise ReadOnlyError

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> NoReturn:
        raise ReadOnlyError

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> NoReturn:
        raise ReadOnlyError

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> NoReturn:
        raise ReadOnlyError

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        raise ReadOnlyError

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        raise ReadOnlyError
