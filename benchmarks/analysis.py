"""How long do the answers take on a run of a million trials and ten million requests? At most 2 s, in at most 1 GB.

Each command is run as a user runs it, in a process of its own: the interpreter's start and all imports count. ``best``
and ``sensitivity`` look at a run with one objective; ``pareto`` is ``best`` on a run with two. The runs are made up and
written as `chunksmith records compact` writes them, which takes minutes; ``--keep`` names a folder that is used again.

Run as ``python -m benchmarks.analysis`` from the repository's root, on a machine that does nothing else; the time of
the CPUs, which other work changes less, is printed beside, and has no bound.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report

BOUND_S, BOUND_GB = 2.0, 1.0
REPEATS = 5


def timed(command: list[str]) -> tuple[float, float, float]:
    """Of a process that has to succeed: seconds by the clock, seconds of the CPUs, and peak resident memory in GB (10^9
    bytes)."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
    # In KiB: getrusage(2). A child's peak begins with what its parent had, so this process has to stay small.
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m benchmarks.analysis``."""
    parser = argparse.ArgumentParser(description="Time and memory of best, pareto and sensitivity.")
    parser.add_argument("--trials", type=int, default=1_000_000, help="trials; each has 10 requests")
    parser.add_argument("--keep", type=Path, help="make the runs in this folder, or use those that are there")
    args = parser.parse_args(argv)
    if args.keep is not None:
        return _measure(args.keep, args.trials)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder), args.trials)


def _measure(folder: Path, trials: int) -> int:
    console = Console(width=120)
    one, two = folder / "one-objective", folder / "two-objectives"
    if not two.exists():
        # In a process of its own, so that its memory is given back before anything is measured.
        words = [
            "-c",
            "import sys, pathlib; from benchmarks._big_runs import make_runs; "
            "make_runs(pathlib.Path(sys.argv[1]), int(sys.argv[2]), print)",
            str(folder),
            str(trials),
        ]
        subprocess.run([sys.executable, *words], check=True)
    program = [sys.executable, "-m", "orchestrator.cli"]
    commands = {
        "best": [*program, "best", str(one), "--json"],
        "pareto": [*program, "best", str(two), "--json"],
        "sensitivity": [*program, "sensitivity", str(one), "--json"],
    }
    table = Table(
        title=f"answers on {trials:,} trials and {10 * trials:,} requests, process start and imports included"
    )
    for head in ("command", "median s", "longest s", "median CPU s", "peak GB"):
        table.add_column(head)
    figures: dict[str, float] = {"trials": trials, "requests": 10 * trials}
    bounds: list[Bound] = []
    imports = ["-c", "import orchestrator.analysis.best, orchestrator.analysis.sensitivity, optuna"]
    for name, command in {"the imports alone": [sys.executable, *imports], **commands}.items():
        runs = [timed(command) for _ in range(REPEATS)]
        by_clock, of_cpu, memory = zip(*runs, strict=True)
        median, cpu, peak = statistics.median(by_clock), statistics.median(of_cpu), max(memory)
        table.add_row(name, *(f"{figure:.2f}" for figure in (median, max(by_clock), cpu, peak)))
        figures |= {f"{name}_s": median, f"{name}_cpu_s": cpu, f"{name}_gb": peak}
        if name in commands:
            bounds.append(Bound(name=f"{name}: median s", value=median, bound=BOUND_S))
            bounds.append(Bound(name=f"{name}: peak GB", value=peak, bound=BOUND_GB))
    return report("analysis", [table], figures, bounds, console)


if __name__ == "__main__":
    sys.exit(main())
