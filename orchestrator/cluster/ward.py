"""One engine in the reaper's care, in a thread of its own: what is slow about it keeps the reaper from no other.

Imports only the standard library and psutil, because the reaper does it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.cluster.guard import Guard, note_verdict
from orchestrator.cluster.reaper import (
    SCAN_INTERVAL_S,
    Lease,
    beat_path,
    is_alive,
    is_made_since,
    mapped_inodes,
    ranks_id,
    remove_engine,
    steps_path,
)
from orchestrator.cluster.scans import Scan, Scans

AGAIN_S: Final = 10.0
"""How long until what survived SIGKILL is killed again."""


class Ward:
    """Guards an engine until its owner is gone, then removes what is left of it.

    Args:
        path: Of the lease.
    """

    def __init__(self, lease: Lease, path: Path, scans: Scans) -> None:
        self._lease, self._path, self._scans = lease, path, scans
        self._inodes: set[int] = set()

    def run(self) -> None:
        """Returns when nothing of the engine is left."""
        try:
            owner = os.pidfd_open(self._lease.owner_pid)
        except ProcessLookupError:
            owner = -1
        try:
            self._watch(owner)
        finally:
            if owner >= 0:
                os.close(owner)
        self._remove()

    def _watch(self, owner: int) -> None:
        """While the owner lives, note the engine's shared files, and kill the owner when the watchdog calls the engine
        hung: Ray tells the driver of its death, and the log tells why."""
        waiter, lease = select.poll(), self._lease
        if owner >= 0:
            waiter.register(owner, select.POLLIN)
        pages = (beat_path(lease.engine_id), steps_path(lease.engine_id))
        guard = Guard(lease.owner_pid, *pages, lease.silence_s, lease.gpus)
        while is_alive(lease.owner_pid, lease.owner_start):
            scan = self._scans.last(SCAN_INTERVAL_S)
            pids = scan.pids.get(lease.engine_id, ())
            self._note_files(scan, pids)
            # The ranks of a vLLM over Ray are children of Ray's. What they do on this node, the engine does.
            ranks = scan.pids.get(ranks_id(lease.engine_id), ())
            if (why := guard.look({*pids, *ranks})) is not None:
                note_verdict(lease.log_path, lease.engine_id, why)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(owner, signal.SIGKILL)
            waiter.poll(SCAN_INTERVAL_S * 1000)

    def _note_files(self, scan: Scan, pids: Sequence[int]) -> None:
        if scan.unclaimed:
            # The owner's own maps count too: it makes the semaphores and buffers through which it speaks to the engine.
            mapped = set[int]().union(*map(mapped_inodes, (self._lease.owner_pid, *pids)))
            # To a reaper that has just begun, those of other programs are as new as the engine's.
            start = self._lease.owner_start
            found = {one for one in mapped & set(scan.unclaimed) if is_made_since(scan.shared[one], start)}
            if found:
                self._inodes |= found
                self._scans.claim(found)
        # Again and again: glibc makes a semaphore under another name than it has later.
        names = {scan.shared[inode] for inode in self._inodes & scan.shared.keys()}
        if not names <= set(self._lease.shared_files):
            self._lease.shared_files = sorted(names.union(self._lease.shared_files))
            self._write()

    def _remove(self) -> None:
        while True:
            try:
                remove_engine(self._lease, self._scans.processes)
            except TimeoutError:
                # It sits in the driver. The next engine cannot wait for that.
                self._lease.is_stuck = True
                self._write()
                time.sleep(AGAIN_S)
            else:
                self._path.unlink(missing_ok=True)
                return

    def _write(self) -> None:
        """A full disk must not keep the engine from its reaper, which knows by itself what stands in the lease."""
        with contextlib.suppress(OSError):
            self._lease.write(self._path)
