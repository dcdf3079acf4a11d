"""One engine in the reaper's care: what counts as its own, on a clock that the test turns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from orchestrator.cluster import guard, reaper, ward
from orchestrator.cluster.heartbeat import Beat
from orchestrator.cluster.scans import Scan, Scans
from orchestrator.cluster.vitals import Vitals
from orchestrator.cluster.watchdog import QUIET_S

LOOKS = 60
RANK = 10**9
"""A pid that no process has."""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, on a machine of the test's own."""
    monkeypatch.setattr(reaper, "ROOT", tmp_path / "root")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


class MadeUpScans(Scans):
    """Finds one process of an id, half a second later at each look; with the last look the owner ends."""

    def __init__(self, owner: subprocess.Popen[bytes], engine_id: str) -> None:
        super().__init__()
        self.now_s, self._owner, self._pids = 1000.0, owner, {engine_id: [RANK]}

    def last(self, age_s: float) -> Scan:
        self.now_s += reaper.SCAN_INTERVAL_S
        if self.now_s >= 1000.0 + LOOKS * reaper.SCAN_INTERVAL_S:
            self._owner.terminate()
            self._owner.wait()
        return Scan(self.now_s, self._pids, {}, ())

    def processes(self, engine_id: str) -> Iterable[psutil.Process]:
        return ()


@pytest.mark.parametrize(
    ("whose", "ended_by"), [("X", signal.SIGTERM), ("X-ranks", signal.SIGTERM), ("Y-ranks", signal.SIGKILL)]
)
def test_an_engine_whose_ranks_compute_is_no_hang(
    owner: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    whose: str,
    ended_by: signal.Signals,
) -> None:
    """Of a vLLM over Ray on one node, where the ranks are children of Ray's."""
    scans = MadeUpScans(owner, whose)

    def made_up(pid: int) -> Vitals:
        return Vitals(pid, 1, "x", "S", scans.now_s if pid == RANK else 0.0)

    monkeypatch.setattr(guard, "vitals", made_up)
    monkeypatch.setattr(guard, "threads_at_work", lambda pids: set())
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: scans.now_s))
    beating = SimpleNamespace(read=lambda path: Beat(at_s=scans.now_s, since_s=1000.0, phase="block", sent=1))
    monkeypatch.setattr(guard, "Beat", beating)
    monkeypatch.setattr(ward, "SCAN_INTERVAL_S", 0.001)
    lease = reaper.Lease("X", owner.pid, reaper.start_ticks(owner.pid) or 0, log_path=str(tmp_path / "log"))
    path = reaper.lease_folder() / "X.json"
    lease.write(path)
    assert LOOKS * reaper.SCAN_INTERVAL_S > 2 * QUIET_S
    ward.Ward(lease, path, scans).run()
    assert owner.wait() == -ended_by
    assert (tmp_path / "log").exists() is (ended_by == signal.SIGKILL)
    assert not path.exists()


MAPS = """
import mmap, os, sys
old, new = sys.argv[1:]
kept = [mmap.mmap(os.open(old, os.O_RDWR), 4096)]
file = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(file, 4096)
kept.append(mmap.mmap(file, 4096))
print(flush=True)
input()
"""


@pytest.fixture
def shared() -> Iterator[tuple[Path, Path]]:
    """A shared file that is there, and a name for another."""
    old, new = (Path(f"/dev/shm/chunksmith-test-{uuid.uuid4().hex}") for _ in range(2))
    old.write_bytes(bytes(4096))
    yield old, new
    for one in (old, new):
        one.unlink(missing_ok=True)


@pytest.mark.parametrize("by", ["the owner", "a child"])
def test_a_reaper_that_begins_late_takes_no_file_that_was_there_before_the_engine(
    shared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    monkeypatch.setattr(reaper, "ROOT", tmp_path / "root")
    monkeypatch.setattr(ward, "SCAN_INTERVAL_S", 0.01)
    # Times of files come in ticks of the kernel's clock, and of processes in hundredths of a second.
    old_s = shared[0].stat().st_ctime
    while time.time() < old_s + 0.1:
        time.sleep(0.01)
    engine_id = f"test-{uuid.uuid4().hex[:10]}"
    command = [sys.executable, "-c", MAPS, *map(str, shared)]
    if by == "a child":
        command = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command]
    env = {**os.environ, reaper.ENGINE_ID_ENV: engine_id}
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    try:
        assert owner.stdout is not None
        owner.stdout.readline()
        lease = reaper.Lease(engine_id, owner.pid, reaper.start_ticks(owner.pid) or 0)
        path = reaper.lease_folder() / f"{engine_id}.json"

        class NotedScans(Scans):
            """The owner is killed once the reaper has looked for the third time."""

            looks = 0

            def last(self, age_s: float) -> Scan:
                self.looks += 1
                if self.looks == 3:
                    owner.kill()
                    owner.wait()
                return super().last(age_s)

        ward.Ward(lease, path, NotedScans()).run()
    finally:
        owner.kill()
        owner.communicate()
    assert [one.exists() for one in shared] == [True, False]
