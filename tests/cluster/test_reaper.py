"""The reaper, with real processes and real shared memory in place of an engine's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from orchestrator.cluster import reaper

ROOT = Path(__file__).parents[2]


@dataclass
class Family:
    """An owner and what it started."""

    engine_id: str
    owner: subprocess.Popen[str]
    child: int
    grandchild: int
    memory: Path

    @property
    def lease(self) -> Path:
        return reaper.lease_folder() / f"{self.engine_id}.json"

    def reaper_pid(self) -> int:
        return reaper.Lease.read(self.lease).reaper_pid

    def is_gone(self) -> bool:
        alive = [pid for pid in (self.child, self.grandchild) if is_running(pid)]
        return not alive and not self.memory.exists() and not self.lease.exists()


StartFamily = Callable[[str], Family]


@pytest.fixture
def start_family() -> Iterator[StartFamily]:
    started: list[Family] = []

    def start(mode: str) -> Family:
        engine_id = f"test-{uuid.uuid4().hex[:10]}"
        owner = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "owner_child.py"), engine_id, mode],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert owner.stdout is not None
        child, grandchild, memory = owner.stdout.readline().split()
        family = Family(engine_id, owner, int(child), int(grandchild), Path("/dev/shm") / memory)
        started.append(family)
        assert is_running(family.grandchild)
        assert family.memory.exists()
        assert wait_for(lambda: str(family.memory) in reaper.Lease.read(family.lease).shared_files)
        return family

    yield start
    for family in started:
        family.owner.kill()
        family.owner.wait()
        assert wait_for(family.is_gone)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_removes_everything_when_the_owner_dies(start_family: StartFamily, number: signal.Signals) -> None:
    family = start_family("stay")
    semaphores = {name for name in reaper.shared_files(family.child) if "sem.mp-" in name}
    assert semaphores
    family.owner.send_signal(number)
    family.owner.wait()
    assert wait_for(family.is_gone)
    assert not any(Path(name).exists() for name in semaphores)
    assert not list(reaper.engine_processes(family.engine_id))


def test_spares_everything_while_the_owner_lives(start_family: StartFamily) -> None:
    family = start_family("stay")
    # Two whole rounds of the reaper's own clock, seen by the lease that it would remove.
    assert not wait_for(lambda: not family.lease.exists(), timeout_s=3 * reaper.SCAN_INTERVAL_S)
    assert is_running(family.child)


def test_release_kills_the_engine_but_not_the_owner(start_family: StartFamily) -> None:
    family = start_family("release")
    assert family.owner.stdin is not None
    assert family.owner.stdout is not None
    family.owner.stdin.write("\n")
    family.owner.stdin.flush()
    assert family.owner.stdout.readline() == "released\n"
    assert not is_running(family.child)
    assert not is_running(family.grandchild)
    assert family.owner.poll() is None


def test_stale_lease_of_a_dead_reaper_is_cleaned_up(start_family: StartFamily) -> None:
    family = start_family("stay")
    reaper_pid = family.reaper_pid()
    os.kill(reaper_pid, signal.SIGKILL)
    assert wait_for(lambda: not is_running(reaper_pid))
    assert family.engine_id not in reaper.reap_stale()
    family.owner.kill()
    family.owner.wait()
    assert is_running(family.child)
    assert family.engine_id in reaper.reap_stale()
    assert family.is_gone()


def test_an_owner_with_a_reused_pid_counts_as_dead() -> None:
    start = reaper.start_ticks(os.getpid())
    assert start is not None
    assert reaper.is_alive(os.getpid(), start)
    assert not reaper.is_alive(os.getpid(), start - 1)


def test_a_process_that_is_gone_or_a_zombie_has_no_start() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    assert wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert reaper.start_ticks(child.pid) is None
    child.wait()
    assert reaper.start_ticks(child.pid) is None


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
