"""The parts of a sweep in several slots, each on its own: slots, the crew, the desk."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.engines import EngineConfig, EngineError, EngineInfo
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.errors import ChunksmithError
from orchestrator.search import Point
from orchestrator.sweep import Progress
from orchestrator.sweep.crew import Crew
from orchestrator.sweep.desk import Desk, pause
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.slot import Slot, SlotEnded
from orchestrator.sweep.study import Told
from orchestrator.sweep.trial import Measured
from tests.sweep.studies import make_spec, new_run, run_sweep

SPEC = make_spec(trials=3, sampler={"kind": "random"})

pytestmark = pytest.mark.timeout(30)


def make_slot(number: int, make_engine: Callable[[], FaultyEngine] = FaultyEngine) -> Slot:
    return Slot(
        number,
        SPEC,
        make_engine,
        SPEC.engine_config(),
        {},
        engines=1,
        on_start=lambda *_: None,
        say=lambda _: None,
        may_leave=lambda _: False,
    )


def test_a_slot_that_was_ended_starts_no_engine() -> None:
    made: list[FaultyEngine] = []

    def make_engine() -> FaultyEngine:
        made.append(FaultyEngine())
        return made[-1]

    slot = make_slot(0, make_engine)
    slot.bench.engine({})
    slot.end()
    assert not made[0].is_running
    slot.pool.discard_all()
    with pytest.raises(SlotEnded):
        slot.bench.engine({})
    assert len(made) == 1


def test_a_slot_that_is_warm_at_the_second_try_is_not_cut() -> None:
    class FirstFails(FaultyEngine):
        """Fault: the first start fails."""

        starts = 0

        def start(self, config: EngineConfig) -> EngineInfo:
            FirstFails.starts += 1
            if FirstFails.starts == 1:
                raise EngineError("engine-start", "a moment's trouble")
            return super().start(config)

    slot = make_slot(0, FirstFails)
    slot.bench.engine({})
    assert FirstFails.starts == 2
    assert not slot.cut()
    assert not slot.is_retired


class Errands:
    """Work of which each slot does one piece: the first takes longest, and the others find nothing after theirs."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.is_done = threading.Event()

    def run(self, slot: Slot) -> None:
        self.slots.append(slot.number)
        if slot.number == 0:
            time.sleep(0.2)
            self.is_done.set()

    def end(self) -> None:
        pass


def test_no_slot_is_added_once_one_found_nothing_to_do() -> None:
    errands = Errands()
    said: list[str] = []
    crew = Crew(make_slot, lambda there: there + 1, said.append, review_s=0.02)
    crew.run(errands, 100)
    assert errands.is_done.is_set()
    assert sorted(errands.slots) == [0, 1]
    assert said == ["2 trials at a time"]
    assert crew.size == 2
    assert crew.alone().number == 0
    assert crew.size == 1


class Book:
    """Fault: a book whose storage is made up. It hands out so many trials."""

    ended = None

    def __init__(self, trials: int) -> None:
        self.left, self.told, self._trials = trials, list[int](), trials

    def next(self) -> tuple[int, Point] | None:
        if self.left == 0:
            return None
        self.left -= 1
        return self._trials - self.left - 1, {"mla_workspace_rows": 128, "max_num_batched_tokens": 256}

    def tell(self, number: int, told: Told) -> None:
        self.told.append(number)


def desk_of(tmp_path: Path, book: Any, over: threading.Event | None = None) -> Desk:
    run = new_run(tmp_path / "run", SPEC)
    progress = Progress(Console(file=io.StringIO()), 3, 0)
    provenance = Provenance(run.provenance, SPEC)
    return Desk(book, Ledger(SPEC, run), provenance, progress, over or threading.Event(), is_timed=False)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def catch() -> None:
        try:
            found.append(call())
        except (SlotEnded, ChunksmithError) as error:
            found.append(error)

    thread = threading.Thread(target=catch, daemon=True)
    thread.start()
    return thread, found


def test_a_slot_waits_for_what_another_may_give_back(tmp_path: Path) -> None:
    desk, slots = desk_of(tmp_path, Book(1)), [make_slot(0), make_slot(1)]
    job = desk.next(slots[0])
    assert job is not None
    thread, found = in_thread(lambda: desk.next(slots[1]))
    thread.join(0.1)
    assert found == []
    desk.give_back(job)
    thread.join(5)
    assert found == [job]


@pytest.mark.parametrize("how", ["ended", "record"])
def test_whoever_waits_at_the_desk_is_told_that_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    over = threading.Event()
    desk, slots = desk_of(tmp_path, Book(1), over), [make_slot(0), make_slot(1)]
    job = desk.next(slots[0])
    assert job is not None
    waiting = [in_thread(lambda: desk.next(slots[1])), in_thread(lambda: pause(over, 60))]
    if how == "ended":
        desk.end()
    else:

        def faulty_write(self: Ledger, ended: object) -> None:
            raise ChunksmithError("no space")

        monkeypatch.setattr(Ledger, "write_trials", faulty_write)
        measured: Any = Measured(None, [])  # type: ignore[arg-type]
        with pytest.raises(ChunksmithError, match="no space"):
            desk.hand_in({job: measured})
    for thread, found in waiting:
        thread.join(5)
        assert len(found) == 1
    with pytest.raises(SlotEnded if how == "ended" else ChunksmithError):
        desk.next(slots[0])


def test_the_noise_that_a_trial_takes_does_not_change_under_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", SPEC)
    run_sweep(SPEC, run)
    ledger = Ledger(SPEC, run)
    taken = ledger.noise
    before = taken.dof
    taken.add([0.1, 0.2])
    assert (ledger.noise.dof, taken.dof) == (before, before + 1)
