"""The reaper's own process: guards one engine until its owner is gone, then removes what is left of it.

SIGKILL of the owner (the Ray worker), of the driver or of Ray itself does not stop it. Run as ``python -m
orchestrator.cluster.reaper_process``; imports only the standard library and psutil, because one runs beside every
engine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
from pathlib import Path

from orchestrator.cluster import gpus
from orchestrator.cluster.guard import Guard, note_verdict
from orchestrator.cluster.reaper import (
    SCAN_INTERVAL_S,
    Lease,
    beat_path,
    engine_processes,
    is_alive,
    remove_engine,
    shared_files,
    steps_path,
)
from orchestrator.cluster.watchdog import SILENCE_S


def watch(lease: Lease, path: Path) -> None:
    """Guard an engine until its owner is gone, then remove what is left of it.

    While the owner lives, note the engine's shared files, and kill the owner when the watchdog calls the engine hung:
    Ray tells the driver of its death, and the log tells why.
    """
    try:
        owner = os.pidfd_open(lease.owner_pid)
    except ProcessLookupError:
        owner = -1
    waiter = select.poll()
    if owner >= 0:
        waiter.register(owner, select.POLLIN)
    pages = (beat_path(lease.engine_id), steps_path(lease.engine_id))
    guard = Guard(lease.owner_pid, *pages, lease.silence_s, lease.gpus)
    while is_alive(lease.owner_pid, lease.owner_start):
        pids = [process.pid for process in engine_processes(lease.engine_id)]
        # The owner's own maps count too: it makes the semaphores and buffers through which it speaks to the engine.
        found = {*lease.shared_files}.union(*(shared_files(pid) for pid in (lease.owner_pid, *pids)))
        if found != set(lease.shared_files):
            lease.shared_files = sorted(found)
            lease.write(path)
        if (why := guard.look(pids)) is not None:
            note_verdict(lease.log_path, lease.engine_id, why)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(owner, signal.SIGKILL)
        waiter.poll(SCAN_INTERVAL_S * 1000)
    remove_engine(lease)
    path.unlink(missing_ok=True)


def main() -> None:
    """Entry point: leave the caller's process tree and session first, then watch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine-id", required=True)
    parser.add_argument("--owner-pid", type=int, required=True)
    parser.add_argument("--owner-start", type=int, required=True)
    parser.add_argument("--lease", type=Path, required=True)
    parser.add_argument("--log", default="")
    parser.add_argument("--silence-s", type=float, default=SILENCE_S)
    arguments = parser.parse_args()
    lease = Lease(
        arguments.engine_id,
        arguments.owner_pid,
        arguments.owner_start,
        log_path=arguments.log,
        silence_s=arguments.silence_s,
        gpus=gpus.own_gpus(),
    )
    lease.gpu_before_mib = gpus.memory_used_mib(lease.gpus)
    with contextlib.suppress(OSError, ValueError, TypeError):
        # An earlier reaper of the engine was killed.
        earlier = Lease.read(arguments.lease)
        lease.shared_files, lease.gpu_before_mib = earlier.shared_files, earlier.gpu_before_mib
    _leave(lease, arguments.lease)
    watch(lease, arguments.lease)


def _leave(lease: Lease, path: Path) -> None:
    """Leave the caller's process tree and session; when the command returns to it, the lease is written.

    Ray kills the direct children of a worker that exits. A grandchild in a session of its own is not one.
    """
    is_written, writes = os.pipe()
    if child := os.fork():
        lease.reaper_pid = child
        lease.write(path)
        os._exit(0)
    os.close(writes)
    os.read(is_written, 1)
    os.close(is_written)
    lease.reaper_pid = os.getpid()
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)


if __name__ == "__main__":
    main()
