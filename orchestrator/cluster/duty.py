"""One reaper of a user is on duty on a machine: how it is known, how it begins, and how it leaves.

It holds the lock of a file for as long as it lives, and its name stands in that file while it is on duty. A lease is
written before its owner looks for that name, and the name is taken out before a reaper that leaves looks for leases a
last time: one of the two sees the other. Imports the standard library alone, because the reaper does it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orchestrator.cluster.vitals import vitals

_LOCK: Final = "reaper.lock"
_START: Final = "reaper.start"

_LEAVES_IN_S: Final = 10.0
"""How long a reaper that leaves is waited for."""

_POLL_S: Final = 0.01


def on_duty(folder: Path) -> int | None:
    """The pid of the reaper on duty.

    Args:
        folder: Of the leases.
    """
    try:
        pid, start = map(int, (folder / _LOCK).read_text().split())
    except (OSError, ValueError):
        return None
    found = vitals(pid)
    return pid if found is not None and found.start == start else None


def ensure(folder: Path, start: Callable[[], object]) -> None:
    """Start a reaper if none is on duty. Of those that come at the same time, one does and the others wait."""
    if on_duty(folder) is not None:
        return
    with (folder / _START).open("a") as file:
        # Unlike that of ``flock`` this lock is not inherited: a process that is forked meanwhile does not keep it.
        fcntl.lockf(file, fcntl.LOCK_EX)
        if on_duty(folder) is None:
            start()


class Duty:
    """The reaper's own side.

    Args:
        folder: Of the leases.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self) -> bool:
        """Begin, once a reaper that leaves has left. False when another is on duty.

        Raises:
            TimeoutError: One has left its duty, and does not end.
        """
        deadline = time.monotonic() + _LEAVES_IN_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_duty(self._folder) is not None:
                    return False
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._folder / _LOCK} is held by a process that is not on duty") from None
                time.sleep(_POLL_S)
            else:
                self._sign()
                return True

    def leave(self, is_needed: Callable[[], bool]) -> bool:
        """Leave, unless ``is_needed`` says otherwise at the last moment; whether it did. The lock goes with this
        process, which is to end then."""
        os.ftruncate(self._file, 0)
        if is_needed():
            self._sign()
            return False
        return True

    def _sign(self) -> None:
        own = vitals(os.getpid())
        assert own is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{own.pid} {own.start}".encode(), 0)
