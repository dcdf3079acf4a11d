"""What the kernel lab reaches of what these cores can do: gathers of a copy, attention of a product of matrices.

A rate and its roof are measured next to each other, in an order that a coin decides, on one thread and on two. Each is
the fastest of a few runs. The part of the roof is a geometric mean over the turns with a Student t interval (95 %).
Beside the lab's attention stands torch's own ``scaled_dot_product_attention`` on the same keys. The fp8 gather has no
bound: unpacking is arithmetic, not copying. It takes about 3 minutes. The last line is one JSON object.

    python -m benchmarks.lab_roof [--quick] [--threads 1 2]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from benchmarks._lab_roofs import CPU_SIZES, QUICK_SIZES, Reached, all_cases, measure
from benchmarks._report import Bound, report
from orchestrator.engines.kernel_lab.kernels import kernels_for
from orchestrator.engines.kernel_lab.machine import pin
from orchestrator.engines.kernel_lab.roof import measure_roof
from orchestrator.planning import warm_up

CPU = torch.device("cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes that fit into caches: proves the plumbing")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, help="pairs of each rate")
    given = parser.parse_args(arguments)
    warm_up()
    sizes, turns = (QUICK_SIZES, 2) if given.quick else (CPU_SIZES, 5)
    console = Console(width=150)
    tables, rows, bounds = [], [], []
    for threads in given.threads:
        pin(threads, None)
        _, dtype = measure_roof(CPU, None)
        cases = all_cases(CPU, dtype, kernels_for(CPU), sizes)
        found = measure(cases, given.turns or turns, random.Random(threads))
        named = str(dtype).removeprefix("torch.")
        tables.append(table(f"{threads} thread{'s' * (threads > 1)}, {named}", found))
        rows += [{"threads": threads, "dtype": named, **reached.row()} for reached in found]
        bounds += [
            Bound(name=f"{one.name}, {threads} threads", value=one.part.ratio, bound=one.bound, sense="at least")
            for one in found
            if one.bound is not None
        ]
    return report("lab_roof", tables, {"rows": rows}, bounds, console)


def table(title: str, found: Sequence[Reached]) -> Table:
    """A line for each rate."""
    shown = Table(title=title)
    shown.add_column("what")
    for name in ("rate", "roof", "part of the roof", "asked for"):
        shown.add_column(name, justify="right")
    for one in found:
        row, part = one.row(), one.part
        asked = "" if one.bound is None else f"{one.bound:.0%}"
        cells = [f"{row['rate']:,.1f} {one.unit}", f"{row['roof']:,.1f} {one.unit}"]
        shown.add_row(one.name, *cells, f"{part.ratio:.1%} ({part.low:.1%} to {part.high:.1%})", asked)
    return shown


if __name__ == "__main__":
    sys.exit(main())
