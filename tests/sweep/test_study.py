from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution

from orchestrator.errors import ChunksmithError
from orchestrator.search import Point
from orchestrator.search.portfolio import GAIN_ATTR, LOST_ATTR, NOISE_ATTR, PortfolioSampler
from orchestrator.sweep.proposals import Proposals
from orchestrator.sweep.search_section import StopSection
from orchestrator.sweep.study import Told, TrialBook, open_study, repair_journal

CHOICES = {"rows": (1, 2, 3, 4), "size": (None, 10)}
POINTS: list[Point] = [{"rows": rows, "size": size} for rows in CHOICES["rows"] for size in CHOICES["size"]]
RATIO = Told(ratios=[0.5], log_variance=1e-4)


def proposals(points: Sequence[Point] = POINTS, *, records_gain: bool = False) -> Proposals:
    distributions = {name: CategoricalDistribution(values) for name, values in CHOICES.items()}
    sampler = PortfolioSampler(points, distributions=distributions, start=2, records_gain=records_gain)
    return Proposals(points, CHOICES, sampler)


def opened(journal: Path, given: Proposals | None = None) -> optuna.Study:
    return open_study(journal, name="s", proposals=given or proposals(), directions=["minimize"])


def book(journal: Path, trials: int = 8, given: Proposals | None = None, stop: StopSection | None = None) -> TrialBook:
    given = given or proposals()
    return TrialBook(opened(journal, given), given, trials, stop)


def value(point: Point) -> Told:
    """A bowl, best at 3 rows of size 10."""
    rows = point["rows"]
    assert isinstance(rows, int)
    return Told(ratios=[1.0 + 0.1 * abs(rows - 3) + 0.05 * (point["size"] is None)], log_variance=1e-6)


def test_trials_are_handed_out_in_order_until_all_are_told(tmp_path: Path) -> None:
    trials = book(tmp_path / "j", 3)
    points: list[Point] = []
    for number in range(3):
        asked = trials.next()
        assert asked is not None
        assert asked[0] == number
        points.append(asked[1])
        trials.tell(number, Told(broken="slo") if number == 1 else RATIO)
    assert trials.next() is None
    assert trials.ended is None
    assert [trial.state.name for trial in trials.finished()] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert [trial.params for trial in trials.finished()] == points


def test_each_end_of_a_trial_reaches_sampler_and_dashboard(tmp_path: Path) -> None:
    trials = book(tmp_path / "j")
    ends = [RATIO, Told(broken="cuda-oom"), Told(), Told(ratios=[0.7], trial_s=2.0, start_s=40.0)]
    for number, end in enumerate(ends):
        trials.next()
        trials.tell(number, end)
    complete, broken, lost, timed = trials.finished()
    assert (complete.value, complete.user_attrs) == (0.5, {NOISE_ATTR: 1e-4})
    assert complete.constraints == {}
    assert (broken.state.name, broken.value, broken.constraints["cuda-oom"]) == ("PRUNED", None, 1.0)
    # The dashboard reads the list alone.
    assert broken.system_attrs["constraints"] == [1.0]
    assert (lost.state.name, lost.user_attrs, lost.constraints) == ("FAIL", {LOST_ATTR: True}, {})
    assert timed.user_attrs == {NOISE_ATTR: 0.0, "trial_seconds": 2.0, "start_seconds": 40.0}


@pytest.mark.parametrize("losses", [1, 2])
def test_a_point_that_was_lost_gets_one_more_trial_after_all_others(tmp_path: Path, losses: int) -> None:
    trials = book(tmp_path / "j", 20)
    first = trials.next()
    assert first is not None
    trials.tell(0, Told())
    points: list[Point] = []
    while (asked := trials.next()) is not None:
        points.append(asked[1])
        is_lost = losses == 2 and asked[1] == first[1]
        trials.tell(asked[0], Told() if is_lost else Told(broken="slo") if len(points) == 2 else RATIO)
    assert sorted(map(str, points)) == sorted(map(str, POINTS))
    assert points[-1] == first[1]
    assert trials.ended == "every point was measured"
    assert book(tmp_path / "j", 20).next() is None


def test_a_trial_that_was_never_told_is_handed_out_first_with_its_point(tmp_path: Path) -> None:
    before = book(tmp_path / "j")
    first = before.next()
    assert first is not None
    before.tell(0, RATIO)
    second = before.next()
    again = book(tmp_path / "j")
    assert again.next() == second
    again.tell(1, RATIO)
    third = again.next()
    assert third is not None
    assert third[0] == 2


def test_what_a_dead_process_had_told_of_a_trial_is_told_again(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    before = book(tmp_path / "j")
    before.next()
    before._asked[0].set_constraint("slo", 1.0)
    again = book(tmp_path / "j")
    again.next()
    again.tell(0, Told(broken="slo"))
    assert again.finished()[0].constraints["slo"] == 1.0
    assert [str(one.message) for one in recwarn] == []


def test_the_search_stops_when_little_is_to_be_gained_and_a_resumed_one_agrees(tmp_path: Path) -> None:
    given, stop = proposals(records_gain=True), StopSection(expected_gain=0.02, after=2)
    trials = book(tmp_path / "j", 8, given, stop)
    while (asked := trials.next()) is not None:
        trials.tell(asked[0], value(asked[1]))
        again = book(tmp_path / "j", 8, proposals(records_gain=True), stop)
        assert again._why_ended(again.finished()) == trials._why_ended(trials.finished())
    told = trials.finished()
    gains = [trial.system_attrs.get(GAIN_ATTR) for trial in told]
    assert trials.ended == "less than 2 % of the best ratio was to be gained, 2 times in a row"
    assert gains[:2] == [None, None]
    assert 4 <= len(told) < 8
    assert all(gain is not None and gain < 0.02 for gain in gains[-2:])
    # Not before: no two trials in a row promised as little.
    small = [gain is not None and gain < 0.02 for gain in gains]
    assert not any(small[at] and small[at + 1] for at in range(len(small) - 2))
    best = min(trial.value or 9.0 for trial in told)
    assert best <= 1.02 * 1.0


def test_a_run_of_another_space_is_refused(tmp_path: Path) -> None:
    trials = book(tmp_path / "j")
    trials.next()
    other = Proposals(POINTS, {**CHOICES, "rows": (1, 2, 3)}, proposals().sampler)
    with pytest.raises(ChunksmithError, match="trial 0 chose rows from other values than the spec gives now"):
        opened(tmp_path / "j", other)


@settings(max_examples=12)
@given(cut=st.integers(min_value=1, max_value=10_000))
def test_a_journal_cut_anywhere_opens_and_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    journal = tmp_path_factory.mktemp("cut") / "j"
    trials = book(journal, 4)
    while (asked := trials.next()) is not None:
        trials.tell(asked[0], value(asked[1]))
    expected = [(trial.params, trial.values) for trial in trials.finished()]
    whole = journal.read_bytes()
    journal.write_bytes(whole[: cut % len(whole)])
    again = book(journal, 4)
    while (asked := again.next()) is not None:
        again.tell(asked[0], value(asked[1]))
    # Begun again at the same place, the trials are the same: the sampler depends on the numbers and results alone.
    assert [(trial.params, trial.values) for trial in again.finished()] == expected


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
