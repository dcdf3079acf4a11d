"""Runs or resumes a study on the faulty engine: a process for a test to kill.

Run as ``sweeping_child.py RUN [STEP]``. It prints ``ready`` when its imports are done. With STEP it kills itself when
it flushes something to the disk for the STEP-th time, just before the flush: a fault put in at an exact place.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.records import RunFolder
from orchestrator.sweep import SweepSpec
from tests.sweep.studies import read_spec, run_sweep


def kill_before_flush(step: int) -> None:
    """Replace ``os.fsync``, which every record and every line of the journal goes through."""
    flush, seen = os.fsync, 0

    def counted(fd: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(fd)

    os.fsync = counted


def main(run: RunFolder, step: int | None) -> None:
    spec: SweepSpec = read_spec(run)
    print("ready", flush=True)
    if step is not None:
        kill_before_flush(step)
    run_sweep(spec, run)


if __name__ == "__main__":
    main(RunFolder.open(Path(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else None)
