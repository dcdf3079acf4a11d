from __future__ import annotations

import os
import threading
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import ChunksmithError
from orchestrator.search import Knob, Point, Space
from orchestrator.sweep.study import TrialBook, open_study, repair_journal

SPACE = Space((Knob("rows", "live", (1, 2, 3, 4)), Knob("size", "live", (None, 10))))


def opened(journal: Path, space: Space = SPACE, seed: int = 0) -> optuna.Study:
    return open_study(journal, name="s", space=space, group_of=lambda number: {}, direction="minimize", seed=seed)


def book(journal: Path, trials: int = 8) -> TrialBook:
    return TrialBook(opened(journal), SPACE, trials)


def test_trials_are_handed_out_in_order_until_all_are_told(tmp_path: Path) -> None:
    trials = book(tmp_path / "j", 3)
    points: list[Point] = []
    for number in range(3):
        asked = trials.next()
        assert asked is not None
        assert asked[0] == number
        points.append(asked[1])
        if number == 1:
            trials.tell_without_value(number, infeasible=True)
        else:
            trials.tell_ratio(number, 0.5)
    assert trials.next() is None
    assert [trial.state.name for trial in trials.finished()] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert [trial.params for trial in trials.finished()] == points


def test_a_trial_that_was_never_told_is_handed_out_first_with_its_point(tmp_path: Path) -> None:
    before = book(tmp_path / "j")
    first = before.next()
    assert first is not None
    before.tell_ratio(0, 1.0)
    second = before.next()
    again = book(tmp_path / "j")
    assert again.next() == second
    again.tell_ratio(1, 1.0)
    third = again.next()
    assert third is not None
    assert third[0] == 2


@settings(max_examples=20)
@given(cut=st.integers(min_value=1, max_value=10_000), seed=st.integers(0, 3))
def test_a_journal_cut_anywhere_opens_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, cut: int, seed: int
) -> None:
    journal = tmp_path_factory.mktemp("cut") / "j"
    trials = book(journal, 4)
    while (asked := trials.next()) is not None:
        trials.tell_ratio(asked[0], 1.0 + asked[0])
    whole = journal.read_bytes()
    journal.write_bytes(whole[: cut % len(whole)])
    again = book(journal, 4)
    while (asked := again.next()) is not None:
        again.tell_ratio(asked[0], 1.0 + asked[0])
    assert [trial.value for trial in again.finished()] == [1.0, 2.0, 3.0, 4.0]
    # Begun again at the same place, the trials are the same: the sampler depends on the numbers and results alone.
    assert [trial.params for trial in again.finished()] == [trial.params for trial in trials.finished()]


@pytest.mark.parametrize("torn", [b'{"op_code"', b"{", b"\xff\x00"])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    journal = tmp_path / "j"
    trials = book(journal)
    trials.next()
    whole = journal.read_bytes()
    journal.write_bytes(whole + torn)
    repair_journal(journal)
    assert journal.read_bytes() == whole
    repair_journal(journal)
    assert journal.read_bytes() == whole


def test_a_lock_that_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    opened(journal)
    lock = tmp_path / "j.lock"
    lock.symlink_to(journal)
    # Without the repair Optuna would wait for its grace period of 30 s.
    worker = threading.Thread(target=lambda: book(journal).next(), daemon=True)
    worker.start()
    worker.join(timeout=15)
    assert not worker.is_alive()
    assert not os.path.lexists(lock)


def test_what_is_not_a_journal_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "j"
    other.write_bytes(b"x" * 1_000_001)
    with pytest.raises(ChunksmithError, match="is not an Optuna journal"):
        repair_journal(other)
    assert other.stat().st_size == 1_000_001


def test_a_relative_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be absolute"):
        opened(Path("j"))
    assert list(tmp_path.iterdir()) == []
