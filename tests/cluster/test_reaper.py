"""The reaper, with real processes and real shared memory in place of an engine's."""

from __future__ import annotations

import os
import re
import resource
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
from orchestrator.cluster.guard import verdict_of
from orchestrator.cluster.watchdog import QUIET_S

ROOT = Path(__file__).parents[2]

GONE_IN_S = 5.0
NOTICED_IN_S = 15.0


@dataclass
class Family:
    """An owner and what it started."""

    engine_id: str
    owner: subprocess.Popen[str]
    child: int
    grandchild: int
    memory: Path
    temporary: Path
    log: Path

    @property
    def lease(self) -> Path:
        return reaper.lease_folder() / f"{self.engine_id}.json"

    def reaper_pid(self) -> int:
        return reaper.Lease.read(self.lease).reaper_pid

    def is_gone(self) -> bool:
        alive = [pid for pid in (self.child, self.grandchild) if is_running(pid)]
        return not alive and not self.memory.exists() and not self.temporary.exists() and not self.lease.exists()

    def say(self) -> None:
        """Have the owner do what its mode is, and wait until it has."""
        assert self.owner.stdin is not None
        assert self.owner.stdout is not None
        self.owner.stdin.write("\n")
        self.owner.stdin.flush()
        assert self.owner.stdout.readline() == "done\n"


StartFamily = Callable[[str], Family]


@pytest.fixture
def start_family(tmp_path: Path) -> Iterator[StartFamily]:
    started: list[Family] = []

    def start(mode: str) -> Family:
        engine_id = f"test-{uuid.uuid4().hex[:10]}"
        log = tmp_path / f"{engine_id}.log"
        owner = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "owner_child.py"), engine_id, mode, str(log)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert owner.stdout is not None
        child, grandchild, memory, temporary = owner.stdout.readline().split()
        shared = Path("/dev/shm") / memory
        family = Family(engine_id, owner, int(child), int(grandchild), shared, Path(temporary), log)
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
        assert not reaper.scratch_folder(family.engine_id).exists()


def processor_s() -> float:
    """Of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_removes_everything_when_the_owner_dies(start_family: StartFamily, number: signal.Signals) -> None:
    family = start_family("stay")
    semaphores = {name for name in reaper.shared_files(family.child) if "sem.mp-" in name}
    assert semaphores
    assert reaper.scratch_folder(family.engine_id) in family.temporary.parents
    assert family.temporary.exists()
    family.owner.send_signal(number)
    family.owner.wait()
    assert wait_for(family.is_gone, GONE_IN_S)
    assert not any(Path(name).exists() for name in semaphores)
    assert not list(reaper.engine_processes(family.engine_id))


def test_spares_everything_while_the_owner_lives(start_family: StartFamily) -> None:
    family = start_family("stay")
    # Two whole rounds of the reaper's own clock, seen by the lease that it would remove.
    assert not wait_for(lambda: not family.lease.exists(), timeout_s=3 * reaper.SCAN_INTERVAL_S)
    assert is_running(family.child)


def test_release_kills_the_engine_but_not_the_owner(start_family: StartFamily) -> None:
    family = start_family("release")
    family.say()
    assert not is_running(family.child)
    assert not is_running(family.grandchild)
    assert family.owner.poll() is None


def test_a_stopped_process_is_noticed_and_everything_removed(start_family: StartFamily) -> None:
    family = start_family("stay")
    begin, pid = time.monotonic(), family.child
    os.kill(pid, signal.SIGSTOP)
    assert family.owner.wait(timeout=60) == -signal.SIGKILL
    assert time.monotonic() - begin <= NOTICED_IN_S
    assert wait_for(family.is_gone, GONE_IN_S)
    verdict = verdict_of(family.log.read_text().splitlines())
    assert re.fullmatch(rf"process {pid} \(\S+\) was stopped for 5 s \(state T\)", verdict or ""), verdict


@pytest.mark.soak
def test_an_owner_that_waits_for_ever_in_a_block_is_noticed_and_one_that_computes_is_not(
    start_family: StartFamily,
) -> None:
    computing, sleeping = start_family("compute"), start_family("sleep")
    begin = time.monotonic()
    assert sleeping.owner.wait(timeout=60) == -signal.SIGKILL
    assert time.monotonic() - begin <= NOTICED_IN_S
    verdict = verdict_of(sleeping.log.read_text().splitlines()) or ""
    assert verdict.endswith("1 requests in flight, and its processes are idle"), verdict
    assert not wait_for(lambda: computing.owner.poll() is not None, 2 * QUIET_S)


@pytest.mark.soak
def test_an_owner_that_spins_where_it_never_waited_long_is_noticed(start_family: StartFamily) -> None:
    spinning = start_family("spin")
    assert spinning.owner.stdout is not None
    assert spinning.owner.stdout.readline() == "spins\n"
    begin, before = time.monotonic(), processor_s()
    assert spinning.owner.wait(timeout=120) == -signal.SIGKILL
    # Where others take the processor, it counts for less than the clock.
    assert min(time.monotonic() - begin, processor_s() - before) <= NOTICED_IN_S
    verdict = verdict_of(spinning.log.read_text().splitlines()) or ""
    assert re.search(r"^no step and no token for \d+ s, 1 requests in flight; the longest before was \d", verdict), (
        verdict
    )


def test_a_killed_reaper_is_replaced_and_the_new_one_knows_what_the_old_one_knew(start_family: StartFamily) -> None:
    family = start_family("renew")
    before, files = family.reaper_pid(), set(reaper.Lease.read(family.lease).shared_files)
    os.kill(before, signal.SIGKILL)
    assert wait_for(lambda: not reaper.is_guarded(family.lease))
    family.say()
    assert family.reaper_pid() != before
    assert is_running(family.reaper_pid())
    assert files <= set(reaper.Lease.read(family.lease).shared_files)
    family.owner.kill()
    family.owner.wait()
    assert wait_for(family.is_gone, GONE_IN_S)


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


def test_its_process_imports_next_to_nothing() -> None:
    """One runs beside every engine."""
    heavy = "{'numpy', 'pydantic', 'ray', 'torch', 'vllm'}"
    code = f"import sys, orchestrator.cluster.reaper_process; print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


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
