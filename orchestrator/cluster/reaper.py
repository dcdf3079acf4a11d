"""What an engine has on this machine, how it is known, and how it is removed.

Its processes are known by an environment variable that all of them inherit, and their shared-memory files by their
memory maps; temporary files and sockets lie in a folder of the engine's own. Imports only the standard library and
psutil, because the reaper's process does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from orchestrator.cluster import gpus
from orchestrator.cluster.duty import on_duty
from orchestrator.cluster.vitals import time_of_day, vitals
from orchestrator.cluster.watchdog import SILENCE_S

ENGINE_ID_ENV = "CHUNKSMITH_ENGINE_ID"
"""Every process of an engine carries this variable with the engine's id."""

ROOT = Path("/tmp") / f"chunksmith-{os.getuid()}"
"""This user's folder on this machine, on a file system of its own."""

FORMAT: Final = 2
"""Of the leases. Each has a folder and a reaper: engines of another version of this code are none of ours. (Those of 1
had a reaper each.)"""

SCAN_INTERVAL_S = 0.5
KILL_TIMEOUT_S = 20.0
KILLED_IN_S = 1.0
TRACKER_TIMEOUT_S = 5.0
GPU_TIMEOUT_S = 20.0
_POLL_S = 0.01
_SHM = "/dev/shm/"
_NOT_OURS = ("plasma", "ray")
"""Ray's object store is shared with everybody; an engine may map it but never owns it."""

Find = Callable[[str], Iterable[psutil.Process]]


@dataclass
class Lease:
    """What is known of one engine, kept in a file so that a later process can clean up after a dead reaper.

    ``owner_start`` tells a process from a later one that was given the same pid.

    Attributes:
        shared_files: Files of its processes under ``/dev/shm``, as far as they have been seen.
        log_path: Where a verdict of the watchdog is written; empty for nowhere.
        silence_s: See ``Watchdog``.
        gpus: Those of the engine, and what of their memory was in use before it, in MiB.
        is_stuck: Whether its owner is gone, and one of its processes survives SIGKILL.
    """

    engine_id: str
    owner_pid: int
    owner_start: int
    shared_files: list[str] = field(default_factory=list)
    log_path: str = ""
    silence_s: float = SILENCE_S
    gpus: list[str] = field(default_factory=list)
    gpu_before_mib: list[int] = field(default_factory=list)
    is_stuck: bool = False

    def write(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.__dict__))
        temporary.replace(path)

    @staticmethod
    def read(path: Path) -> Lease:
        return Lease(**json.loads(path.read_text()))


def lease_folder() -> Path:
    """Folder of this user's leases on this machine."""
    return own_folder(f"leases-{FORMAT}")


def scratch_folder(engine_id: str) -> Path:
    """Where an engine's processes put temporary files and sockets. The name of a socket may have 107 bytes in all."""
    return own_folder("scratch") / engine_id


def beat_path(engine_id: str) -> Path:
    """The page of an engine's heartbeat."""
    return lease_folder() / f"{engine_id}.beat"


def steps_path(engine_id: str) -> Path:
    """Where an engine's scheduler counts its steps."""
    return scratch_folder(engine_id) / "steps"


def ranks_id(engine_id: str) -> str:
    """By what the ranks of a vLLM over Ray are known; see ``rank_guard``."""
    return f"{engine_id}-ranks"


def own_folder(name: str) -> Path:
    """A folder of this user, which nobody else can read or has made."""
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: what it names must not be removed")
    return folder


def start_ticks(pid: int) -> int | None:
    """When a process was started, see ``Vitals``. None when there is no such process, or only its zombie."""
    found = vitals(pid)
    return None if found is None else found.start


def is_alive(pid: int, start: int) -> bool:
    """Whether the process with this pid is still the one that was started then."""
    return start_ticks(pid) == start


def engine_processes(engine_id: str) -> Iterator[psutil.Process]:
    """Every live process that inherited the engine's id."""
    return living(processes_by_engine().get(engine_id, ()))


def processes_by_engine() -> dict[str, list[int]]:
    """The pids of all engines' processes on this machine, zombies included, by the engine's id; without this process
    itself."""
    found: dict[str, list[int]] = {}
    name, own = f"{ENGINE_ID_ENV}=".encode(), os.getpid()
    for pid in psutil.pids():
        try:
            environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        _, is_there, rest = environment.partition(b"\0" + name)
        if is_there and pid != own:
            found.setdefault(rest.partition(b"\0")[0].decode(errors="replace"), []).append(pid)
    return found


def living(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Those of the processes that are there, and no zombies."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process


def shared_files(pid: int) -> set[str]:
    """Files under ``/dev/shm`` that a process maps."""
    inodes = mapped_inodes(pid)
    return {path for inode, path in shared_file_names().items() if inode in inodes} if inodes else set()


def mapped_inodes(pid: int) -> set[int]:
    """Inodes of the files under ``/dev/shm`` that a process maps.

    Inodes, because glibc makes a semaphore under another name, and its maker's map goes on showing that one.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    # Columns: addresses, permissions, offset, device, inode, path.
    return {int(line.split(maxsplit=5)[4]) for line in maps.splitlines() if _SHM in line}


def shared_file_names() -> dict[int, str]:
    """Paths of the files under ``/dev/shm``, by their inodes, as far as they may be an engine's."""
    try:
        return {entry.inode(): entry.path for entry in os.scandir(_SHM) if not entry.name.startswith(_NOT_OURS)}
    except OSError:
        return {}


def is_made_since(path: str, start: int) -> bool:
    """Whether a file is there and was made, or last written, after a process was started; see ``Vitals``. What is older
    an engine of that owner merely maps: a GPU service's memory, or another program's."""
    try:
        return Path(path).stat().st_ctime >= time_of_day(start)
    except OSError:
        return False


def is_resource_tracker(process: psutil.Process) -> bool:
    """Whether a process is Python's own tracker of named semaphores and shared memory (``multiprocessing``)."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def kill_engine(engine_id: str, find: Find = engine_processes) -> set[str]:
    """Kill every process of the engine but the resource trackers, and wait until none is left.

    The trackers are spared because they know what the dead made in their last moments, which no scan has seen. They
    end by themselves, and remove it, when the last process that they serve is gone.

    Args:
        find: Finds the live processes of an engine.

    Returns the shared files that the killed processes mapped.

    Raises:
        TimeoutError: One survives SIGKILL for ``KILL_TIMEOUT_S`` (it sits in an uninterruptible driver call).
    """
    files: set[str] = set()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while processes := [process for process in find(engine_id) if not is_resource_tracker(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"engine {engine_id}: pids {[p.pid for p in processes]} survive SIGKILL")
        for process in processes:
            files |= shared_files(process.pid)
        _kill(processes)
    return files


def remove_engine(lease: Lease, find: Find = engine_processes) -> None:
    """Remove every process and file of an engine whose owner is gone, and wait for its GPUs' memory. ``find`` and what
    it raises: see ``kill_engine``."""
    engine_id = lease.engine_id
    mapped = kill_engine(engine_id, find)
    files = {*lease.shared_files, *(name for name in mapped if is_made_since(name, lease.owner_start))}
    _kill(outliving(list(find(engine_id)), TRACKER_TIMEOUT_S))
    for name in files:
        if name.startswith(_SHM):
            Path(name).unlink(missing_ok=True)
    shutil.rmtree(scratch_folder(engine_id), ignore_errors=True)
    beat_path(engine_id).unlink(missing_ok=True)
    gpus.wait_for_memory(lease.gpus, lease.gpu_before_mib, GPU_TIMEOUT_S)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    outliving(processes, KILLED_IN_S)


def outliving(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that are still there after a time. A zombie is not: who has to collect it may be slow."""
    deadline = time.monotonic() + timeout_s
    while (there := list(living(process.pid for process in processes))) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return there


def is_guarded(path: Path) -> bool:
    """Whether an engine's lease is there, and a reaper that goes by it."""
    return path.exists() and on_duty(path.parent) is not None


def is_removing() -> bool:
    """Whether the reaper on this machine removes what a dead owner left, and gets on with it."""
    return on_duty(lease_folder()) is not None and any(not lease.is_stuck for _, lease in _orphaned())


def reap_stale() -> list[str]:
    """Clean up after every engine on this machine whose owner is dead while there is no reaper; return their ids."""
    reaped: list[str] = []
    if on_duty(lease_folder()) is not None:
        return reaped
    for path, lease in _orphaned():
        try:
            remove_engine(lease)
        except TimeoutError:
            continue  # it sits in the driver; the lease stays for the next to come
        path.unlink(missing_ok=True)
        reaped.append(lease.engine_id)
    return reaped


def _orphaned() -> Iterator[tuple[Path, Lease]]:
    """Leases whose owners are dead."""
    for path in lease_folder().glob("*.json"):
        try:
            lease = Lease.read(path)
        except (OSError, ValueError, TypeError):
            continue  # it is being removed
        if not is_alive(lease.owner_pid, lease.owner_start):
            yield path, lease
