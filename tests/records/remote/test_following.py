"""A sweep goes on whatever its mirror does, and the mirror catches up."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable

import pytest

from orchestrator.errors import UserError
from orchestrator.records import RunFolder
from orchestrator.records.remote import Following, Mirror, Place, RemoteError, open_mirror
from tests.records.remote.runs import NUMBERS, contents, contents_there, record
from tests.s3 import FaultyWire

FAST = {"every_s": 0.02, "first_s": 0.05}


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Lines(list[str]):
    """What was said."""

    def say(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def said() -> Lines:
    return Lines()


@pytest.fixture
def warned() -> Lines:
    return Lines()


def test_what_is_written_gets_there_while_it_is_written(run: RunFolder, said: Lines, warned: Lines) -> None:
    mirror = open_mirror(run, f"memory://bucket-{next(NUMBERS)}")
    with Following(run, mirror, said.say, warned.say, **FAST):
        wait_for(lambda: contents_there(mirror.address) == contents(run))
        record(run, 3)
        wait_for(lambda: contents_there(mirror.address) == contents(run))
        record(run, 4)
    assert contents_there(mirror.address) == contents(run)
    assert (said, warned) == ([f"records go to {mirror.address} too"], [])


class FaultySlowPlace(Place):
    """Fault: a storage that takes its time."""

    def write(self, name: str, content: bytes) -> None:
        time.sleep(0.02)
        super().write(name, content)


def test_the_end_waits_for_what_is_on_its_way(run: RunFolder, said: Lines, warned: Lines) -> None:
    mirror = Mirror(run, FaultySlowPlace(f"memory://bucket-{next(NUMBERS)}/demo"))
    with Following(run, mirror, said.say, warned.say, **FAST):
        pass
    assert contents_there(mirror.address) == contents(run)
    assert warned == []


def test_nothing_is_sent_before_the_sweep_begins(run: RunFolder, said: Lines, warned: Lines) -> None:
    run.provenance.unlink()
    mirror = open_mirror(run, f"memory://bucket-{next(NUMBERS)}")
    with contextlib.suppress(UserError), Following(run, mirror, said.say, warned.say, **FAST):
        raise UserError("no such Ray cluster")
    assert contents_there(mirror.address) == {}
    assert warned == []


def test_a_storage_that_goes_is_waited_for_and_gets_what_it_lacks(
    run: RunFolder, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, said: Lines, warned: Lines
) -> None:
    wire = FaultyWire(endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", wire.endpoint)
    # The driver's own patience, which is longer than a test's.
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    mirror = open_mirror(run, bucket)
    with Following(run, mirror, said.say, warned.say, **FAST):
        wait_for(lambda: not mirror.missing())
        wire.cut()
        record(run, 3, 4, 5)
        wait_for(lambda: len(said) == 2)
        assert re.match(rf"mirror: {bucket}/demo: .*; the sweep goes on, and what is missing there follows", said[1])
        wire.mend()
        wait_for(lambda: len(said) == 3)
    assert said[2].startswith("mirror: up to date again after ")
    assert contents_there(mirror.address) == contents(run)
    assert warned == []


class FaultyPlace(Place):
    """Fault: nothing can be written, or the answer never comes."""

    hangs = False
    hung = threading.Event()

    def write(self, name: str, content: bytes) -> None:
        if self.hangs:
            self.hung.set()
            threading.Event().wait()
        raise RemoteError(f"{self.address}: no space", is_refusal=False)


@pytest.mark.parametrize("hangs", [False, True])
def test_what_did_not_get_there_is_said_at_the_end(
    run: RunFolder, said: Lines, warned: Lines, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultyPlace, "hangs", hangs)
    mirror = Mirror(run, FaultyPlace(f"memory://bucket-{next(NUMBERS)}/demo"))
    with Following(run, mirror, said.say, warned.say, end_s=0.3, **FAST):
        wait_for(lambda: FaultyPlace.hung.is_set() if hangs else len(said) == 2)
    (line,) = warned
    why = "" if hangs else rf" \({mirror.address}: no space\)"
    assert re.fullmatch(
        rf"mirror: requests/merged-00000.parquet and \d+ more did not get to {mirror.address}{why}. The run folder has "
        rf"everything; to send it: chunksmith records mirror {run.path}",
        line,
    )
    assert said[-1] == f"mirror: waiting for {mirror.address} for up to 0 s"


def test_a_stopped_sweep_waits_less(run: RunFolder, said: Lines, warned: Lines) -> None:
    mirror = Mirror(run, FaultyPlace(f"memory://bucket-{next(NUMBERS)}/demo"))
    begin = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):  # noqa: SIM117 - the second one is what is tested
        with Following(run, mirror, said.say, warned.say, stop_s=0.1, **FAST):
            wait_for(lambda: len(said) == 2)
            raise KeyboardInterrupt
    assert time.monotonic() - begin < 10
    assert len(warned) == 1


def test_at_the_start_a_storage_that_does_not_answer_is_a_mistake_later_an_outage(
    run: RunFolder, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FaultyWire(endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", wire.endpoint)
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    wire.cut()
    with pytest.raises(UserError, match=rf"{bucket}/demo: .*\(the mirror of the run; --mirror none sweeps without"):
        open_mirror(run, bucket)
    wire.mend()
    open_mirror(run, bucket).send()
    wire.cut()
    record(run, 3)
    mirror = open_mirror(run, bucket)
    with pytest.raises(RemoteError):
        mirror.send()
    wire.mend()
    mirror.send()
    assert contents_there(mirror.address) == contents(run)
