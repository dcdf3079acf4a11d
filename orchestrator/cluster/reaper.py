"""Watches over one engine from outside, and removes what it leaves when its owner dies.

A process of its own, so that SIGKILL of the owner (the Ray worker), of the driver or of Ray itself does not stop it.
It knows the engine's processes by an environment variable that all of them inherit, and their shared-memory files by
their memory maps. Run as ``python reaper.py --engine-id ID --owner-pid PID --owner-start TICKS --lease FILE``;
imports only the standard library and psutil, because one runs beside every engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ENGINE_ID_ENV = "CHUNKSMITH_ENGINE_ID"
"""Every process of an engine carries this variable with the engine's id."""

SCAN_INTERVAL_S = 0.5
KILL_TIMEOUT_S = 20.0
TRACKER_TIMEOUT_S = 5.0
_SHM = "/dev/shm/"
_NOT_OURS = ("plasma", "ray")
"""Ray's object store is shared with everybody; an engine may map it but never owns it."""


@dataclass
class Lease:
    """What is known of one engine, kept in a file so that a later process can clean up after a dead reaper.

    ``owner_start`` tells a process from a later one that was given the same pid.
    """

    engine_id: str
    owner_pid: int
    owner_start: int
    reaper_pid: int = 0
    shared_files: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.__dict__))
        temporary.replace(path)

    @staticmethod
    def read(path: Path) -> Lease:
        return Lease(**json.loads(path.read_text()))


def lease_folder() -> Path:
    """Folder of this user's leases on this machine, on its own temporary file system."""
    folder = Path("/tmp") / f"chunksmith-{os.getuid()}" / "leases"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: what it names must not be removed")
    return folder


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine's start (``/proc/PID/stat``, field 22).

    None when there is no such process, or only its zombie. Unlike a time of day it is the same whatever the clock does.
    """
    try:
        # The second field is the name in brackets, which may hold anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def is_alive(pid: int, start: int) -> bool:
    """Whether the process with this pid is still the one that was started then."""
    return start_ticks(pid) == start


def engine_processes(engine_id: str) -> Iterator[psutil.Process]:
    """Every live process that inherited the engine's id."""
    wanted = f"{ENGINE_ID_ENV}={engine_id}".encode()
    for pid in psutil.pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if wanted in environment.split(b"\0") and pid != os.getpid():
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process
        except (OSError, psutil.NoSuchProcess):
            continue


def shared_files(pid: int) -> set[str]:
    """Files under ``/dev/shm`` that a process maps.

    They are told by their inode: glibc makes a semaphore under another name, and its maker's map goes on showing
    that one.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    # Columns: addresses, permissions, offset, device, inode, path.
    inodes = {int(line.split(maxsplit=5)[4]) for line in maps.splitlines() if _SHM in line}
    if not inodes:
        return set()
    entries = [entry for entry in os.scandir(_SHM) if not entry.name.startswith(_NOT_OURS)]
    return {entry.path for entry in entries if entry.inode() in inodes}


def is_resource_tracker(process: psutil.Process) -> bool:
    """Whether a process is Python's own tracker of named semaphores and shared memory (``multiprocessing``)."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def kill_engine(engine_id: str) -> set[str]:
    """Kill every process of the engine but the resource trackers, and wait until none is left.

    The trackers are spared because they know what the dead made in their last moments, which no scan has seen. They
    end by themselves, and remove it, when the last process that they serve is gone.

    Returns the shared files that the killed processes mapped.

    Raises:
        TimeoutError: One survives SIGKILL for ``KILL_TIMEOUT_S`` (it sits in an uninterruptible driver call).
    """
    files: set[str] = set()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while processes := [process for process in engine_processes(engine_id) if not is_resource_tracker(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"engine {engine_id}: pids {[p.pid for p in processes]} survive SIGKILL")
        for process in processes:
            files |= shared_files(process.pid)
        _kill(processes)
    return files


def remove_engine(engine_id: str, known_files: set[str]) -> None:
    """Remove every process and shared file of an engine whose owner is gone. Raises TimeoutError as ``kill_engine``
    does."""
    files = known_files | kill_engine(engine_id)
    trackers = list(engine_processes(engine_id))
    _, stuck = psutil.wait_procs(trackers, timeout=TRACKER_TIMEOUT_S)
    _kill(stuck)
    for name in files:
        if name.startswith(_SHM):
            Path(name).unlink(missing_ok=True)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=1.0)


def reap_stale() -> list[str]:
    """Clean up after every engine on this machine whose owner and reaper are both dead; return their ids."""
    reaped = []
    for path in lease_folder().glob("*.json"):
        try:
            lease = Lease.read(path)
        except (OSError, ValueError, TypeError):
            continue  # being written or removed by its own reaper
        if is_alive(lease.owner_pid, lease.owner_start) or _is_reaper_of(lease):
            continue
        try:
            remove_engine(lease.engine_id, set(lease.shared_files))
        except TimeoutError:
            continue  # it sits in the driver; the lease stays for the next to come
        path.unlink(missing_ok=True)
        reaped.append(lease.engine_id)
    return reaped


def _is_reaper_of(lease: Lease) -> bool:
    try:
        return lease.engine_id in psutil.Process(lease.reaper_pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def watch(lease: Lease, path: Path) -> None:
    """Note the engine's shared files until its owner is gone, then remove what is left of the engine."""
    lease.reaper_pid = os.getpid()
    lease.write(path)
    try:
        owner = os.pidfd_open(lease.owner_pid)
    except ProcessLookupError:
        owner = -1
    waiter = select.poll()
    if owner >= 0:
        waiter.register(owner, select.POLLIN)
    while is_alive(lease.owner_pid, lease.owner_start):
        # The owner's own maps count too: it makes the semaphores and buffers through which it speaks to the engine.
        found = set(lease.shared_files) | shared_files(lease.owner_pid)
        for process in engine_processes(lease.engine_id):
            found |= shared_files(process.pid)
        if found != set(lease.shared_files):
            lease.shared_files = sorted(found)
            lease.write(path)
        waiter.poll(SCAN_INTERVAL_S * 1000)
    remove_engine(lease.engine_id, set(lease.shared_files))
    path.unlink(missing_ok=True)


def main() -> None:
    """Entry point: leave the caller's process tree and session first, then watch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine-id", required=True)
    parser.add_argument("--owner-pid", type=int, required=True)
    parser.add_argument("--owner-start", type=int, required=True)
    parser.add_argument("--lease", type=Path, required=True)
    arguments = parser.parse_args()
    # Ray kills the direct children of a worker that exits. A grandchild in a session of its own is not one.
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    watch(Lease(arguments.engine_id, arguments.owner_pid, arguments.owner_start), arguments.lease)


if __name__ == "__main__":
    main()
