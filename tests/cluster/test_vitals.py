"""What Linux says of processes: real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from orchestrator.cluster.vitals import ProcessorTime, Vitals, threads_at_work, vitals

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", code]))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def of(pid: int) -> Vitals:
    found = vitals(pid)
    assert found is not None
    return found


def test_a_process_that_sleeps_is_not_at_work(start: Start) -> None:
    sleeping = start("import time; time.sleep(600)").pid
    assert wait_for(lambda: not threads_at_work([sleeping]))


def test_a_thread_that_computes_is_at_work_and_its_time_counts(start: Start) -> None:
    busy = start("import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()").pid
    begin = of(busy).cpu_s
    assert wait_for(lambda: of(busy).cpu_s > begin + 0.2)
    assert wait_for(lambda: len(threads_at_work([os.getppid(), busy])) > 0)


def test_a_stopped_process_says_so(start: Start) -> None:
    child = start("import time; time.sleep(600)")
    assert not of(child.pid).is_stopped
    child.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: of(child.pid).is_stopped)
    child.send_signal(signal.SIGCONT)
    assert wait_for(lambda: not of(child.pid).is_stopped)


def test_a_zombie_and_a_process_that_is_gone_have_none(start: Start) -> None:
    child = start("pass")
    assert wait_for(lambda: vitals(child.pid) is None)
    child.wait()
    assert vitals(child.pid) is None
    assert not threads_at_work([child.pid])


def test_a_name_may_hold_anything(start: Start) -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) R 1 (b', 0, 0, 0); time.sleep(600)"
    pid = start(code).pid
    assert wait_for(lambda: of(pid).name == "a) R 1 (b")
    assert of(pid).start > 0


def test_time_is_added_up_while_processes_come_and_go() -> None:
    def used(pid: int, seconds: float, start: int = 1) -> Vitals:
        return Vitals(pid, start, "x", "S", seconds)

    time_s = ProcessorTime()
    assert time_s.add([used(1, 2.0)]) == 2.0
    assert time_s.add([used(1, 3.0), used(2, 1.0)]) == 4.0
    # The first is gone: what it used stays, and the same pid anew begins at nothing.
    assert time_s.add([used(2, 1.5)]) == 4.5
    assert time_s.add([used(2, 0.25, start=9)]) == 4.75
