"""Runs a study on the kernel lab in this process, without Ray: sweeping_child.py RUN. Ended by its test."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.records import RunFolder
from tests.sweep.studies import read_spec, run_sweep

if __name__ == "__main__":
    run = RunFolder.open(Path(sys.argv[1]))
    run.logs.mkdir(exist_ok=True)
    numbers = itertools.count()

    def make_engine() -> KernelLabEngine:
        engine_id = f"engine-{next(numbers)}"
        log = run.logs / f"{engine_id}.log"
        log.write_text(f"{engine_id} in process\n")
        return KernelLabEngine(engine_id, str(log))

    run_sweep(read_spec(run), run, make_engine)
