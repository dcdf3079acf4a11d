"""The thread between slots and desk: it records together what comes together, and hurries when a slot waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.sweep.scribe import Scribe
from orchestrator.sweep.trial import Job

pytestmark = pytest.mark.timeout(30)


class Desk:
    """Fault: a desk that takes as long over what is handed in as it is told."""

    def __init__(self) -> None:
        self.batches, self.prepared = list[list[int]](), 0
        self.may_go, self.takes_s = threading.Event(), 0.0
        self.error: Exception | None = None
        self.may_go.set()

    def hand_in(self, ended: Mapping[Job, Any]) -> None:
        self.batches.append([job.number for job in ended])
        assert self.may_go.wait(10)
        time.sleep(self.takes_s)
        if self.error is not None:
            raise self.error

    def prepare(self, wanted: int) -> bool:
        self.prepared += 1
        return True


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def job(number: int) -> Job:
    return Job(number=number, point={}, label=f"trial {number}")


def scribe_of(thread: ThreadPoolExecutor, desk: Any, *, is_ahead: bool = True) -> Scribe:
    return Scribe(thread, desk, lambda: 4, is_ahead=is_ahead)


def test_what_comes_while_it_records_is_recorded_together(thread: ThreadPoolExecutor) -> None:
    desk = Desk()
    desk.may_go.clear()
    scribe, measured = scribe_of(thread, desk), object()
    first = scribe.hand_in(job(0), measured)  # type: ignore[arg-type]
    while not desk.batches:
        time.sleep(0.001)
    others = [scribe.hand_in(job(number), measured) for number in range(1, 9)]  # type: ignore[arg-type]
    assert not first.done()
    desk.may_go.set()
    for told in (first, *others):
        scribe.wait(told)
    # However many slots wait, it is one batch for all of them: none is held back by the queue of the others.
    assert desk.batches == [[0], list(range(1, 9))]
    assert desk.prepared >= 2
    assert scribe.takes_s > 0


def test_it_does_not_rest_while_a_slot_waits(thread: ThreadPoolExecutor) -> None:
    desk = Desk()
    desk.takes_s = 0.3
    scribe, measured = scribe_of(thread, desk), object()
    scribe.wait(scribe.hand_in(job(0), measured))  # type: ignore[arg-type]
    desk.takes_s = 0.0
    begin = time.monotonic()
    # By itself it would rest for 2.7 s now.
    second = scribe.hand_in(job(1), measured)  # type: ignore[arg-type]
    time.sleep(0.1)
    assert not second.done()
    scribe.wait(second)
    assert time.monotonic() - begin < 1.5


def test_a_storage_that_was_away_does_not_make_it_rest_as_long(
    thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.sweep.scribe._MOST_REST_S", 0.1)
    desk = Desk()
    desk.takes_s = 0.5
    scribe, measured = scribe_of(thread, desk), object()
    scribe.wait(scribe.hand_in(job(0), measured))  # type: ignore[arg-type]
    desk.takes_s = 0.0
    # By its rule alone it would rest for 4.5 s; nobody waits for this one.
    scribe.hand_in(job(1), measured).result(timeout=3.0)  # type: ignore[arg-type]


def test_whoever_waits_is_told_what_went_wrong(thread: ThreadPoolExecutor) -> None:
    desk = Desk()
    desk.error = ChunksmithError("no space")
    scribe = scribe_of(thread, desk)
    with pytest.raises(ChunksmithError, match="no space"):
        scribe.wait(scribe.hand_in(job(0), object()))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_ahead", [True, False])
def test_trials_are_asked_for_ahead_only_where_that_is_wanted(thread: ThreadPoolExecutor, is_ahead: bool) -> None:
    desk = Desk()
    scribe = scribe_of(thread, desk, is_ahead=is_ahead)
    scribe.begin()
    scribe.wait(scribe.hand_in(job(0), object()))  # type: ignore[arg-type]
    thread.submit(lambda: None).result()
    assert (desk.prepared > 0) == is_ahead
