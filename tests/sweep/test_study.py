from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution

from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder
from orchestrator.records.store import Retrying
from orchestrator.search import Point
from orchestrator.search.portfolio import GAIN_ATTR, LOST_ATTR, NOISE_ATTR, PortfolioSampler
from orchestrator.sweep.proposals import Proposals
from orchestrator.sweep.search_section import StopSection
from orchestrator.sweep.study import Told, TrialBook, open_study

CHOICES = {"rows": (1, 2, 3, 4), "size": (None, 10)}
POINTS: list[Point] = [{"rows": rows, "size": size} for rows in CHOICES["rows"] for size in CHOICES["size"]]
RATIO = Told(ratios=[0.5], log_variance=1e-4)


def proposals(points: Sequence[Point] = POINTS, *, records_gain: bool = False, seed: int = 0) -> Proposals:
    distributions = {name: CategoricalDistribution(values) for name, values in CHOICES.items()}
    sampler = PortfolioSampler(points, distributions=distributions, start=2, records_gain=records_gain, seed=seed)
    return Proposals(points, CHOICES, sampler)


def opened(folder: Path, given: Proposals | None = None) -> optuna.Study:
    return open_study(RunFolder(folder), name="s", proposals=given or proposals(), directions=["minimize"])


def book(folder: Path, trials: int = 8, given: Proposals | None = None, stop: StopSection | None = None) -> TrialBook:
    given = given or proposals()
    return TrialBook(opened(folder, given), given, trials, stop)


def value(point: Point) -> Told:
    """A bowl, best at 3 rows of size 10."""
    rows = point["rows"]
    assert isinstance(rows, int)
    return Told(ratios=[1.0 + 0.1 * abs(rows - 3) + 0.05 * (point["size"] is None)], log_variance=1e-6)


def test_trials_are_handed_out_in_order_until_all_are_told(tmp_path: Path) -> None:
    trials = book(tmp_path, 3)
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
    trials = book(tmp_path)
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
    trials = book(tmp_path, 20)
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
    assert book(tmp_path, 20).next() is None


def test_a_trial_that_was_never_told_is_handed_out_first_with_its_point(tmp_path: Path) -> None:
    before = book(tmp_path)
    first = before.next()
    assert first is not None
    before.tell(0, RATIO)
    second = before.next()
    again = book(tmp_path)
    assert again.next() == second
    again.tell(1, RATIO)
    third = again.next()
    assert third is not None
    assert third[0] == 2


def test_what_a_dead_process_had_told_of_a_trial_is_told_again(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    before = book(tmp_path)
    before.next()
    before._asked[0].set_constraint("slo", 1.0)
    again = book(tmp_path)
    again.next()
    again.tell(0, Told(broken="slo"))
    assert again.finished()[0].constraints["slo"] == 1.0
    assert [str(one.message) for one in recwarn] == []


def test_the_search_stops_when_little_is_to_be_gained_and_a_resumed_one_agrees(tmp_path: Path) -> None:
    given, stop = proposals(records_gain=True), StopSection(expected_gain=0.02, after=2)
    trials = book(tmp_path, 8, given, stop)
    while (asked := trials.next()) is not None:
        trials.tell(asked[0], value(asked[1]))
        again = book(tmp_path, 8, proposals(records_gain=True), stop)
        assert again._why_ended() == trials._why_ended()
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


def test_the_study_is_read_once_however_many_trials_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, real = list[None](), TrialBook._read

    def counted(self: TrialBook) -> Sequence[Any]:
        reads.append(None)
        return real(self)

    monkeypatch.setattr(TrialBook, "_read", counted)
    trials = book(tmp_path)
    while (asked := trials.next()) is not None:
        trials.tell(asked[0], RATIO)
    assert len(trials.finished()) == 8
    assert len(reads) == 1


def test_a_run_of_another_space_is_refused(tmp_path: Path) -> None:
    trials = book(tmp_path)
    trials.next()
    other = Proposals(POINTS, {**CHOICES, "rows": (1, 2, 3)}, proposals().sampler)
    with pytest.raises(ChunksmithError, match="trial 0 chose rows from other values than the spec gives now"):
        opened(tmp_path, other)


@settings(max_examples=12)
@given(cut=st.integers(min_value=1, max_value=10_000))
def test_a_journal_cut_anywhere_opens_and_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    journal = RunFolder(folder).journal
    trials = book(folder, 4)
    while (asked := trials.next()) is not None:
        trials.tell(asked[0], value(asked[1]))
    expected = [(trial.params, trial.values) for trial in trials.finished()]
    whole = journal.read_bytes()
    journal.write_bytes(whole[: cut % len(whole)])
    again = book(folder, 4)
    while (asked := again.next()) is not None:
        again.tell(asked[0], value(asked[1]))
    # Begun again at the same place, the trials are the same: the sampler depends on the numbers and results alone.
    assert [(trial.params, trial.values) for trial in again.finished()] == expected


def test_several_trials_in_flight_are_each_handed_out_once(tmp_path: Path) -> None:
    trials = book(tmp_path, 5)
    handed = [trials.next() for _ in range(3)]
    assert [one[0] for one in handed if one] == [0, 1, 2]
    trials.tell(1, RATIO)
    handed += [trials.next(), trials.next()]
    assert trials.next() is None
    for number in (4, 0, 3, 2):
        trials.tell(number, RATIO)
    assert trials.next() is None
    assert [trial.number for trial in trials.finished()] == list(range(5))
    assert len({str(one[1]) for one in handed if one}) == 5


def test_trials_in_flight_of_a_dead_process_come_first_with_their_points(tmp_path: Path) -> None:
    before = book(tmp_path)
    handed = [before.next() for _ in range(4)]
    before.tell(1, RATIO)
    before.tell(2, Told(broken="slo"))
    again = book(tmp_path)
    assert [again.next(), again.next()] == [handed[0], handed[3]]
    new = again.next()
    assert new is not None
    assert new[0] == 4
    assert new[1] not in [one[1] for one in handed if one]


def test_threads_that_take_turns_get_every_trial_once(tmp_path: Path) -> None:
    trials, lock, seen = book(tmp_path), threading.Lock(), []

    def work() -> None:
        while True:
            with lock:
                if (asked := trials.next()) is None:
                    return
            with lock:
                seen.append(asked)
                trials.tell(asked[0], RATIO)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in seen) == list(range(8))
    assert len({str(point) for _, point in seen}) == 8


def test_with_every_open_point_in_flight_there_is_none_for_now(tmp_path: Path) -> None:
    trials = book(tmp_path, 20)
    handed = [trials.next() for _ in POINTS]
    assert trials.next() is None
    assert trials.ended is None
    trials.tell(3, Told())
    again = trials.next()
    assert again is not None
    assert handed[3] is not None
    assert again == (8, handed[3][1])
    for number in (0, 1, 2, 4, 5, 6, 7, 8):
        trials.tell(number, RATIO)
    assert trials.next() is None
    assert trials.ended == "every point was measured"


def test_a_point_that_a_dead_process_had_half_written_is_completed_to_one_of_the_space(tmp_path: Path) -> None:
    # With size 10 at 1 and 2 rows alone: most mixtures of two points are none of the space.
    points: list[Point] = [{"rows": rows, "size": 10 if rows in (1, 2) else None} for rows in CHOICES["rows"]]
    begun = book(tmp_path, 4, proposals(points))._study.ask()
    rows = begun.suggest_categorical("rows", CHOICES["rows"])
    whole = RunFolder(tmp_path).journal.read_bytes()
    for seed in range(8):
        # Where others have ended since, the sampler would choose another point, as it does here by another seed.
        RunFolder(tmp_path).journal.write_bytes(whole)
        again = book(tmp_path, 4, proposals(points, seed=seed)).next()
        assert again is not None
        assert (again[0], again[1]["rows"]) == (0, rows)
        assert again[1] in points


class _Outages:
    """Fault injection: the storage's answer to some calls does not arrive, though it did what was asked."""

    def __init__(self, study: optuna.Study, *names: str) -> None:
        self.left = list(names)
        for name in names:
            self._spoil(study._storage, name)

    def _spoil(self, storage: Any, name: str) -> None:
        real = getattr(storage, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = real(*args, **kwargs)
            if name in self.left:
                self.left.remove(name)
                raise ConnectionResetError(name)
            return answer

        setattr(storage, name, call)


@pytest.mark.parametrize("told", [RATIO, Told(broken="slo"), Told()])
def test_a_storage_that_fails_in_the_middle_of_a_call_is_asked_again(tmp_path: Path, told: Told) -> None:
    given, said = proposals(), list[str]()
    study = opened(tmp_path, given)
    retrying = Retrying(said.append, sleep=lambda seconds: None)
    trials = TrialBook(study, given, 2, retrying=retrying)
    outages = _Outages(study, "create_new_trial", "set_trial_param", "set_trial_user_attr", "set_trial_state_values")
    first = trials.next()
    trials.tell(0, told)
    second = trials.next()
    assert [first and first[0], second and second[0]] == [0, 1]
    trials.tell(1, RATIO)
    assert trials.next() is None
    assert outages.left == []
    assert [trial.number for trial in trials.finished()] == [0, 1]
    assert [trial.params for trial in trials.finished()] == [first and first[1], second and second[1]]
    assert any("answers again" in line for line in said)


def test_a_storage_that_fails_while_the_study_opens_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path)
    real, left, said = optuna.Study.get_trials, [True], list[str]()

    def get_trials(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise ConnectionResetError("get_trials")
        return real(*args, **kwargs)

    monkeypatch.setattr(optuna.Study, "get_trials", get_trials)
    given = proposals()
    study = open_study(RunFolder(tmp_path), name="s", proposals=given, directions=["minimize"], say=said.append)
    assert any("answers again" in line for line in said)
    left.append(True)
    trials = TrialBook(study, given, 2, retrying=Retrying(said.append, sleep=lambda seconds: None))
    left.append(True)
    assert trials.finished() == []
    assert not left


def test_a_torn_journal_and_a_stale_lock_are_mended_and_that_is_said(tmp_path: Path) -> None:
    trials = book(tmp_path)
    first, said = trials.next(), list[str]()
    with RunFolder(tmp_path).journal.open("ab") as file:
        file.write(b'{"op_code":6,"wor')
    (tmp_path / "study.journal.lock").symlink_to("study.journal")
    open_study(RunFolder(tmp_path), name="s", proposals=proposals(), directions=["minimize"], say=said.append)
    assert len(said) == 2
    assert book(tmp_path).next() == first
