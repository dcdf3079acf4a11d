"""Writes for ever, and says so: a process for a test to kill. Run as ``writing_child.py FOLDER [STEP]``.

With STEP, the process kills itself at that step of the second write: a fault put in at an exact place.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.records import write_rows
from tests.records.rows import plain_row

STEPS = ("half-written", "written", "synced", "renamed")
NAMES = 5
ROWS = 40


def stamped(stamp: int) -> list[dict[str, Any]]:
    """Rows that all carry one stamp, so that a mixture of two writes shows."""
    gaps = [0.5] * 200
    return [plain_row("requests", trial=stamp, request=index, token_times_s=gaps) for index in range(ROWS)]


def kill_at(step: str) -> None:
    """Put a kill in front of, inside or behind the calls that a write makes."""

    def die(*_: object) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_after(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            call(*arguments)
            die()

        return wrapped

    if step == "half-written":
        write = os.write
        os.write = die_after(lambda descriptor, data: write(descriptor, bytes(data)[: len(data) // 2]))
    elif step == "written":
        os.fsync = die  # type: ignore[assignment]
    elif step == "synced":
        Path.replace = die  # type: ignore[assignment, method-assign]
    elif step == "renamed":
        Path.replace = die_after(Path.replace)  # type: ignore[method-assign]


def main(folder: Path, step: str | None) -> None:
    for stamp in itertools.count(1):
        if step is not None and stamp == 2:
            kill_at(step)
        name = f"part-{0 if step else stamp % NAMES}"
        write_rows(folder, "requests", name, stamped(stamp))
        print(stamp, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
