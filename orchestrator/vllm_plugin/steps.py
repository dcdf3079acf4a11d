"""Scheduler steps, where a watchdog of another process sees them: eight bytes that are mapped from a file.

A long prompt of many steps gives no token before its last one. A page costs no system call, and can be read while the
process that writes it hangs.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

STEPS_FILE_ENV = "CHUNKSMITH_STEPS_FILE"
"""Names the file, which has to be there; without it nothing is written."""

_PAGE = struct.Struct("=q")


class Steps:
    """Counts the steps of this process. Several processes of one engine may share a file: that it changes is what
    counts."""

    def __init__(self) -> None:
        self._count = 0
        self._page: mmap.mmap | None = None

    def count(self) -> None:
        """One step more."""
        if self._count == 0:
            self._page = _mapped()
        self._count += 1
        if self._page is not None:
            _PAGE.pack_into(self._page, 0, self._count)


STEPS = Steps()


def make_steps_file(path: Path) -> None:
    """A file for ``STEPS_FILE_ENV``."""
    path.write_bytes(_PAGE.pack(0))


def _mapped() -> mmap.mmap | None:
    name = os.environ.get(STEPS_FILE_ENV)
    if name is None:
        return None
    try:
        with Path(name).open("r+b") as file:
            return mmap.mmap(file.fileno(), _PAGE.size)
    except (OSError, ValueError):
        # Removed under a process that goes on, or not whole: nobody looks at it.
        return None
