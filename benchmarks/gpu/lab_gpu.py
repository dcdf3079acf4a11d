"""The kernel lab on one GPU: correctness, roofs and the batches of its sweeps; Parquet files and a summary.

This has not been run on a GPU yet. ``--device cpu --quick`` proves the plumbing.

Times have a limit: what does not fit into it is left out, and the summary says so. The lab's counters wait for the GPU
around each gather and each attention, so chunks cost more here than in a server that launches ahead.

    benchmarks/gpu/lab.sh [--device cuda] [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NEEDED = ("torch", "numpy", "numba", "scipy", "pydantic", "rich", "pyarrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; return 0 if all checks hold, 1 if not, 2 when something that is needed is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes: proves the plumbing")
    parser.add_argument("--out", type=Path, default=Path("lab_gpu_out"), help="folder of the results")
    parser.add_argument("--budget", type=float, default=420.0, help="seconds after which nothing new begins")
    given = parser.parse_args(arguments)
    needed = NEEDED if given.device == "cpu" else (*NEEDED, "triton")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed, and needed: {', '.join(missing)}", file=sys.stderr)
        return 2
    begin = time.perf_counter()
    from benchmarks.gpu.lab_run import LabRun
    from orchestrator.engines.kernel_lab.errors import LabError

    try:
        run = LabRun(given.device, given.out, is_quick=given.quick, end=begin + given.budget)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    return run.all_sections()


if __name__ == "__main__":
    sys.exit(main())
