"""A journal is mended where a kill tore it, refused where it is damaged, and read as Optuna reads it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from orchestrator.errors import ChunksmithError
from orchestrator.records.store import open_journal, repair_journal


def filled(journal: Path, trials: int = 3) -> bytes:
    """A journal with trials of every state; its content."""
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(journal))), study_name="s")
    for number in range(trials):
        trial = study.ask()
        trial.suggest_categorical("rows", (1, 2, 3, None, "a"))
        trial.suggest_categorical("size", (1, True))
        trial.set_user_attr("noise", 0.1 * number)
        if number % 3 == 0:
            study.tell(trial, 0.5)
        elif number % 3 == 1:
            trial.set_constraint("slo", 1.0)
            study.tell(trial, state=TrialState.PRUNED)
    return journal.read_bytes()


def trials_of(storage: JournalStorage) -> list[FrozenTrial]:
    return optuna.load_study(study_name="s", storage=storage).get_trials()


@pytest.mark.parametrize("torn", [b'{"op_code"', b"{", b"\xff\x00", b"\x00" * 4096, b"\x00\n\x00\n"])
def test_a_torn_end_is_kept_beside_the_journal_and_cut(tmp_path: Path, torn: bytes) -> None:
    journal = tmp_path / "j"
    whole = filled(journal)
    for number in (1, 2):
        journal.write_bytes(whole + torn)
        (said,) = repair_journal(journal)
        assert said == f"{journal}: its last line was torn; {len(torn)} bytes moved to j.torn-{number}"
        assert (tmp_path / f"j.torn-{number}").read_bytes() == torn
        assert journal.read_bytes() == whole
    assert repair_journal(journal) == []
    assert journal.read_bytes() == whole


@settings(max_examples=15)
@given(cut=st.integers(min_value=1, max_value=100_000))
def test_a_journal_cut_anywhere_loses_only_what_was_not_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    journal = tmp_path_factory.mktemp("cut") / "j"
    whole = filled(journal)
    kept = whole[: cut % len(whole)]
    journal.write_bytes(kept)
    repair_journal(journal)
    assert journal.read_bytes() == kept[: kept.rfind(b"\n") + 1]
    open_journal(journal)


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    filled(journal)
    (tmp_path / "j.lock").symlink_to(journal)
    (tmp_path / "j.lock0123.rename").symlink_to(journal)
    assert repair_journal(journal) == [f"{journal}: a dead process held its lock; taken over"] * 2
    # Left there, Optuna would wait for its grace period of 30 s.
    study = optuna.load_study(study_name="s", storage=open_journal(journal))
    worker = threading.Thread(target=study.ask, daemon=True)
    worker.start()
    worker.join(timeout=15)
    assert not worker.is_alive()
    assert not os.path.lexists(tmp_path / "j.lock")


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"op_code":4,"study_id":0,"worker{"op_code":4,"study_id":0}\n',
        b"\x00\x00\x00\n",
        b'{"op_code":4} {"op_code":4}\n',
        b"%(line)s,%(line)s\n",
        b"17\n",
    ],
)
def test_damage_in_the_middle_is_one_clear_line(tmp_path: Path, damaged: bytes) -> None:
    journal = tmp_path / "j"
    lines = filled(journal).splitlines(keepends=True)
    content = b"".join([*lines[:5], damaged.replace(b"%(line)s", lines[4].rstrip()), *lines[5:]])
    journal.write_bytes(content)
    assert repair_journal(journal) == []
    with pytest.raises(ChunksmithError) as error:
        open_journal(journal)
    message = str(error.value)
    assert message.startswith(f"{journal}: line 6 is damaged: ")
    assert "\n" not in message
    assert journal.read_bytes() == content


def test_an_operation_that_optuna_does_not_know_is_one_clear_line(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    lines = filled(journal).splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines, json.dumps({"op_code": 77}).encode() + b"\n"]))
    with pytest.raises(ChunksmithError, match="cannot be read"):
        open_journal(journal)


def test_what_is_not_a_journal_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "j"
    other.write_bytes(b"x" * 1_000_001)
    with pytest.raises(ChunksmithError, match="is not an Optuna journal"):
        repair_journal(other)
    assert other.stat().st_size == 1_000_001
    other.write_bytes(b"some notes\n")
    assert repair_journal(other) == []
    with pytest.raises(ChunksmithError, match="line 1 is damaged"):
        open_journal(other)
    assert other.read_bytes() == b"some notes\n"


def test_a_relative_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be absolute"):
        open_journal(Path("j"))
    assert list(tmp_path.iterdir()) == []


def test_it_is_read_as_optuna_reads_it_and_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    filled(journal, 12)
    ours, theirs = open_journal(journal), JournalStorage(JournalFileBackend(str(journal)))
    assert trials_of(ours) == trials_of(theirs)
    # What makes it quick: the distributions, equal in every trial, were read once.
    first, *others = ours.get_all_trials(0, deepcopy=False)
    assert all(trial.distributions["rows"] is first.distributions["rows"] for trial in others)
    # Each sees what the other writes from there on.
    optuna.load_study(study_name="s", storage=theirs).tell(2, 0.25)
    study = optuna.load_study(study_name="s", storage=ours)
    assert study.trials[2].value == 0.25
    trial = study.ask()
    trial.suggest_categorical("rows", (1, 2, 3, None, "a"))
    study.tell(trial, 0.125)
    assert trials_of(ours) == trials_of(theirs)
    assert trials_of(theirs)[-1].value == 0.125
