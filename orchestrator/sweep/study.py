"""The Optuna study of a run: opened where it is kept, mended, and known to be this run's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import optuna

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement import Direction
from orchestrator.records import RunFolder
from orchestrator.records.store import JOURNAL, RUN_ATTR, Address, Place, Retrying, open_storage, repair_journal
from orchestrator.sweep.proposals import Proposals
from orchestrator.sweep.trial_book import Told, TrialBook

__all__ = ["Told", "TrialBook", "open_study"]

_IN_THE_RUN = Address.parse(JOURNAL)


def open_study(
    run: RunFolder,
    *,
    name: str,
    proposals: Proposals,
    directions: Sequence[Direction],
    address: Address = _IN_THE_RUN,
    say: Callable[[str], None] | None = None,
) -> optuna.Study:
    """Create the study, or load it if it is there.

    The caller holds the run's lock: nobody else writes the study.

    Args:
        directions: Of each objective.
        address: Where the study is kept.
        say: Told what was mended, and when the storage does not answer.

    Raises:
        UserError: The storage cannot be reached, or holds a study of this name that is another run's.
        ChunksmithError: A damaged journal, or trials of another space.
    """
    say = say or _keep_quiet
    Place.require_free(run, address)
    if address.is_journal:
        for line in repair_journal(run.journal):
            say(line)
    storage = open_storage(address, run.journal)
    # Only now: an address where nobody answers is forgotten.
    place = Place.settle(run, address)

    def opened() -> optuna.Study:
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            sampler=proposals.sampler,
            directions=list(directions),
            load_if_exists=True,
        )
        if not address.is_journal:
            _require_own(study, place)
        _require_same_space(study, proposals, run.journal if address.is_journal else address.text)
        return study

    return Retrying(say).call(opened)


def _keep_quiet(line: str) -> None:
    """Say nothing."""


def _require_own(study: optuna.Study, place: Place) -> None:
    owner = study.user_attrs.get(RUN_ATTR)
    if owner is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(RUN_ATTR, place.run)
    elif owner != place.run:
        raise UserError(
            f"storage {place.address}: holds a study {study.study_name!r} of another run; give this one another name "
            "(key study), or delete that one (optuna delete-study)"
        )


def _require_same_space(study: optuna.Study, proposals: Proposals, where: object) -> None:
    # Trials share their distributions where they were read together.
    seen: set[tuple[str, int]] = set()
    for trial in study.get_trials(deepcopy=False):
        for knob, distribution in trial.distributions.items():
            if (knob, id(distribution)) in seen:
                continue
            seen.add((knob, id(distribution)))
            if getattr(distribution, "choices", None) != proposals.choices.get(knob):
                raise ChunksmithError(
                    f"{where}: trial {trial.number} chose {knob} from other values than the spec gives now; go on "
                    "with the Chunksmith that began the run (see provenance.json)"
                )
