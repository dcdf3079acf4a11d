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
from typing import Protocol

import psutil
import pytest

from orchestrator.cluster import reaper, ward
from orchestrator.cluster.duty import Duty, on_duty
from orchestrator.cluster.guard import verdict_of
from orchestrator.cluster.reaper_process import LINGERS_S
from orchestrator.cluster.scans import Scans
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


class StartFamily(Protocol):
    """Starts one; see ``owner_child`` for the modes."""

    def __call__(self, mode: str, **env: str) -> Family: ...


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of the test's own, as far as leases and reapers go."""
    monkeypatch.setattr(reaper, "ROOT", tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def start_family(tmp_path: Path, root: Path) -> Iterator[StartFamily]:
    started: list[Family] = []

    def start(mode: str, **env: str) -> Family:
        engine_id = f"test-{uuid.uuid4().hex[:10]}"
        log = tmp_path / f"{engine_id}.log"
        owner = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "owner_child.py"), engine_id, mode, str(log)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CHUNKSMITH_TEST_ROOT": str(root), **env},
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


def test_engines_share_a_reaper_and_when_it_is_killed_another_takes_over_all_of_them(
    start_family: StartFamily, root: Path
) -> None:
    families = [start_family("renew"), start_family("stay")]
    before = reapers(root)
    assert len(before) == 1
    files = set(reaper.Lease.read(families[1].lease).shared_files)
    kill_reaper()
    assert not any(reaper.is_guarded(one.lease) for one in families)
    families[0].say()
    assert all(reaper.is_guarded(one.lease) for one in families)
    (after,) = reapers(root)
    assert after not in before
    # Its parent is none of the owner's: Ray kills the children of a worker that ends.
    assert families[0].owner.pid not in [one.pid for one in psutil.Process(after).parents()]
    # What the killed one knew is known, also of an engine that did not ask for another.
    assert files <= set(reaper.Lease.read(families[1].lease).shared_files)
    for family in families:
        family.owner.kill()
        family.owner.wait()
    assert wait_for(lambda: all(one.is_gone() for one in families), GONE_IN_S)


def test_a_lease_that_somebody_removed_is_written_again(start_family: StartFamily) -> None:
    family = start_family("renew")
    family.lease.unlink()
    assert not reaper.is_guarded(family.lease)
    family.say()
    assert reaper.is_guarded(family.lease)


def test_its_priority_is_not_that_of_the_owner_who_started_it(root: Path) -> None:
    code = (
        "import sys, os, pathlib; from orchestrator.cluster import custody, reaper;"
        "os.nice(5); reaper.ROOT = pathlib.Path(sys.argv[1]); custody.start_reaper('test-nice', os.getpid());"
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(root)]
    owner = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()
    [pid] = reapers(root)
    # Only who may raise a priority can.
    wanted = 0 if os.geteuid() == 0 else os.getpriority(os.PRIO_PROCESS, owner.pid)
    assert os.getpriority(os.PRIO_PROCESS, pid) == wanted
    owner.communicate()


def test_owners_that_come_together_get_one_reaper_which_leaves_when_there_is_no_engine(root: Path) -> None:
    code = (
        "import sys, os, pathlib; from orchestrator.cluster import custody, reaper;"
        "reaper.ROOT = pathlib.Path(sys.argv[1]); custody.start_reaper(sys.argv[2], os.getpid());"
        "print(reaper.is_guarded(reaper.lease_folder() / f'{sys.argv[2]}.json'), flush=True); sys.stdin.read()"
    )
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(root), f"test-{number}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    assert [owner.stdout.readline() for owner in owners if owner.stdout is not None] == ["True\n"] * len(owners)
    pids = reapers(root)
    assert len(pids) == 1
    for owner in owners:
        owner.communicate()
    assert wait_for(lambda: not list(reaper.lease_folder().glob("*.json")), GONE_IN_S)
    assert reapers(root) == pids
    assert wait_for(lambda: not reapers(root), LINGERS_S + GONE_IN_S)


def test_a_gpu_that_is_not_given_back_keeps_no_other_engine_from_being_removed(
    start_family: StartFamily, tmp_path: Path
) -> None:
    # Fault: the driver says that the memory of a dead engine is in use.
    used, ask = tmp_path / "used", tmp_path / "bin" / "nvidia-smi"
    ask.parent.mkdir()
    ask.write_text(f"#!/bin/sh\ncat {used}\n")
    ask.chmod(0o755)
    used.write_text("0\n")
    path = f"{ask.parent}{os.pathsep}{os.environ['PATH']}"
    stuck, other = start_family("stay", CUDA_VISIBLE_DEVICES="0", PATH=path), start_family("stay")
    assert reaper.Lease.read(stuck.lease).gpu_before_mib == [0]
    used.write_text("9999\n")
    for family in (stuck, other):
        family.owner.kill()
        family.owner.wait()
    assert wait_for(other.is_gone, GONE_IN_S)
    assert stuck.lease.exists()
    assert reaper.is_removing()
    used.write_text("0\n")
    assert wait_for(stuck.is_gone, GONE_IN_S)
    assert not reaper.is_removing()


def test_what_survives_being_killed_is_killed_again_and_no_start_waits_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []
    path, lease = reaper.lease_folder() / "test.json", reaper.Lease("test", owner_pid=os.getpid(), owner_start=0)
    lease.write(path)

    def remove(lease: reaper.Lease, find: object) -> None:
        # Fault: it sits in a driver when it is killed for the first time.
        known.append(reaper.Lease.read(path).is_stuck)
        if len(known) == 1:
            raise TimeoutError

    monkeypatch.setattr(ward, "remove_engine", remove)
    monkeypatch.setattr(ward, "AGAIN_S", 0.01)
    ward.Ward(lease, path, Scans()).run()
    assert known == [False, True]
    assert not path.exists()
    # What a reaper on duty has given up for now is not waited for.
    Duty(reaper.lease_folder()).take()
    lease.is_stuck = False
    lease.write(path)
    assert reaper.is_removing()
    lease.is_stuck = True
    lease.write(path)
    assert not reaper.is_removing()


def test_a_reaper_that_leaves_stays_for_an_engine_that_comes_in_that_moment(root: Path) -> None:
    folder = reaper.lease_folder()
    duty = Duty(folder)
    assert duty.take()
    assert on_duty(folder) == os.getpid()
    seen: list[int | None] = []

    def comes() -> bool:
        seen.append(on_duty(folder))
        return True

    assert not duty.leave(comes)
    assert on_duty(folder) == os.getpid()
    assert duty.leave(lambda: False)
    # An engine that looks after that finds nobody, and its reaper waits for the end of this one.
    assert (seen, on_duty(folder)) == ([None], None)


def test_a_second_reaper_leaves_the_duty_to_the_first(root: Path) -> None:
    folder = reaper.lease_folder()
    assert Duty(folder).take()
    assert not Duty(folder).take()


def test_stale_lease_of_a_dead_reaper_is_cleaned_up(start_family: StartFamily) -> None:
    family = start_family("stay")
    kill_reaper()
    assert family.engine_id not in reaper.reap_stale()
    family.owner.kill()
    family.owner.wait()
    assert is_running(family.child)
    assert family.engine_id in reaper.reap_stale()
    assert family.is_gone()


def test_its_process_imports_next_to_nothing() -> None:
    """An engine that starts waits for it."""
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


def reapers(root: Path) -> list[int]:
    """All reapers of the test's machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "orchestrator.cluster.reaper_process" in words and str(root) in words:
            found.append(process.pid)
    return found


def kill_reaper() -> None:
    pid = on_duty(reaper.lease_folder())
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: on_duty(reaper.lease_folder()) is None)


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


def test_a_zombie_is_gone_though_nobody_has_collected_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    assert reaper.outliving([process], 0.1) == [process]
    process.kill()
    begin = time.monotonic()
    assert reaper.outliving([process], 60.0) == []
    assert time.monotonic() - begin < 30.0
    assert process.status() == psutil.STATUS_ZOMBIE
    child.communicate()
