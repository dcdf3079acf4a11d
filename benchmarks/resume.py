"""How soon does a study of 10,000 trials that is resumed ask for its first new trial? In at most 2 s.

What is timed is what a resumed sweep does once its code is loaded: read and check the spec, take the run's lock, read
what is recorded, list the space, mend and load Optuna's journal, and choose the next of 50,000 points with 10,000
results behind. Loading the code and starting Ray come on top; the former is printed beside. Each time is taken in a
process of its own. The run is made up from one measured trial, which takes minutes; ``--keep`` writes it to a folder
that is used again.

Run as ``python -m benchmarks.resume`` from the repository's root, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

BOUND_S = 2.0
REPEATS = 5

SPEC: dict[str, Any] = {
    "version": 1,
    "study": "resume",
    "model": "org/model",
    "engine": {"args": {"max_model_len": 16_384, "max_num_batched_tokens": 4096, "max_num_seqs": 128}},
    "space": {
        "mla_workspace_rows": {"scope": "live", "values": [128 * step for step in range(1, 33)]},
        "max_num_batched_tokens": {"scope": "live", "values": [512, 1024, 1536, 2048, 2560, 3072, 3584, 4096]},
        "max_num_seqs": {"scope": "live", "values": [8, 16, 32, 64, 96, 128]},
        "long_prefill_token_threshold": {"scope": "live", "values": [0, 512, 1024, 2048]},
        "block_size": {"scope": "engine", "values": [16, 32, 64, 128]},
        "enable_prefix_caching": {"scope": "engine", "values": [True, False]},
    },
    "workload": {"prompts": 2, "input_len": 6000},
    "trials": 11_000,
    "blocks": {"warmup": 1, "min_pairs": 2, "max_pairs": 3},
    "accuracy": {"prompts": 2, "input_len": 5000, "output_len": 4},
}


class _FirstEngine(BaseException):
    """The sweep has asked for its first trial and wants an engine for it."""


def _resume(run: Path) -> None:
    """In a process of its own: print seconds of the imports, and from there to the first trial."""
    begin = time.perf_counter()
    from rich.console import Console

    from orchestrator.records import RunFolder
    from orchestrator.sweep import Progress, Sweep, load_spec

    loaded = time.perf_counter()

    def make_engine() -> Any:
        raise _FirstEngine

    folder = RunFolder.open(run)
    with Path(os.devnull).open("w") as nowhere, folder.lock():
        spec = load_spec(folder.spec)
        with suppress(_FirstEngine), Progress(Console(file=nowhere), spec.trials, spec.confirm.points) as progress:
            Sweep(spec, folder, make_engine, progress).run()
    print(json.dumps([loaded - begin, time.perf_counter() - loaded]))


def _timed(run: Path, size: int) -> tuple[float, float]:
    """Resume once; afterwards the journal is as it was before, without the trial that was begun."""
    command = [sys.executable, "-m", "benchmarks.resume", "--resume", str(run)]
    # One thread for linear algebra, as in ``sampler_time``: two wait for each other wherever a core is busy.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    os.truncate(run / "study.journal", size)
    imports, seconds = json.loads(done.stdout.splitlines()[-1])
    return imports, seconds


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m benchmarks.resume``."""
    parser = argparse.ArgumentParser(description="Time from a resume to the first new trial.")
    parser.add_argument("--trials", type=int, default=10_000, help="recorded trials")
    parser.add_argument("--keep", type=Path, help="make the run in this folder, or use the one that is there")
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.resume is not None:
        _resume(args.resume)
        return 0
    if args.keep is not None:
        return _measure(args.keep, args.trials)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder) / "run", args.trials)


def _measure(path: Path, trials: int) -> int:
    from rich.console import Console
    from rich.table import Table

    from benchmarks._recorded_runs import record_run
    from benchmarks._report import Bound, report
    from orchestrator.records import RunFolder
    from orchestrator.sweep import SweepSpec

    console = Console(width=120)
    if not path.exists():
        record_run(RunFolder.create(path), SweepSpec.model_validate(SPEC), trials, console.print)
    journal = (path / "study.journal").stat().st_size
    times = [_timed(path, journal) for _ in range(REPEATS)]
    imports, seconds = ([one[which] for one in times] for which in (0, 1))
    table = Table(title=f"from a resume to the first new trial, {trials:,} trials recorded")
    for head in ("", "median s", "longest s"):
        table.add_column(head)
    table.add_row("first ask", f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
    table.add_row("imports, on top", f"{statistics.median(imports):.2f}", f"{max(imports):.2f}")
    figures = {
        "trials": trials,
        "journal_bytes": journal,
        "first_ask_s": seconds,
        "imports_s": imports,
    }
    bound = Bound(name="median s from a resume to the first ask", value=statistics.median(seconds), bound=BOUND_S)
    return report("resume", [table], figures, [bound], console)


if __name__ == "__main__":
    sys.exit(main())
