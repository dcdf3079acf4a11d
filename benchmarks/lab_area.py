"""Fixed groups of four requests against vLLM's area plan and the best plan found, on DeepSeek-V4 prefill attention.

The kernel lab runs one layer: it gathers cached rows into the workspace, chunk by chunk, and attends to them. Batches
of four characters are cut in three ways: groups of 4 of the largest width (vLLM 0.20 to 0.23), vLLM's area plan, and
the way that was fastest in a search over orders and area limits. The search has batches of its own, so that what is
measured afterwards is not the luck of the search. All ways take every batch in turns, in an order that a coin decides;
a pair is a batch, and the interval of a ratio (95 %) is a Student t interval over the logarithms of the pairs. Planning
is not in the times. The last line is one JSON object.

A missed bound says that on this machine the area plan is not shown to be faster; that is a finding, not a fault. It
takes about 6 minutes on one core.

    python -m benchmarks.lab_area [--quick] [--kinds c4a c128a] [--threads 1]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks._lab_chunk_race import AREA_PLAN, FIXED_GROUPS, Outcome, Plan, race
from benchmarks._report import Bound, report
from orchestrator.engines.kernel_lab.machine import device_named, pin
from orchestrator.engines.kernel_lab.roof import measure_roof
from orchestrator.planning import LAYER_TYPES, warm_up

KINDS = ("c4a", "c128a")
FULL = Plan(batches=8, searched=2, turns=2, shrink=1)
QUICK = Plan(batches=3, searched=1, turns=1, shrink=16)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all mixes; return 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="lengths divided by 16 and few batches: proves the plumbing"
    )
    parser.add_argument("--kinds", nargs="+", choices=list(LAYER_TYPES), default=list(KINDS), help="layers to run")
    parser.add_argument("--threads", type=int, default=1, help="threads of one operation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=2)
    given = parser.parse_args(arguments)
    device = device_named(given.device)
    pin(given.threads, None)
    warm_up()
    plan = QUICK if given.quick else FULL
    console = Console(width=150)
    _, dtype = measure_roof(device, None)
    outcomes = []
    for outcome in race(given.kinds, plan, device, dtype, seed=given.seed, threads=given.threads):
        console.print(conclusion(outcome))
        outcomes.append(outcome)
    console.print(explanation(outcomes))
    figures = {
        "device": str(device),
        "threads": given.threads,
        "dtype": str(dtype).removeprefix("torch."),
        "lengths_divided_by": plan.shrink,
        "rows": [outcome.row(way) for outcome in outcomes for way in outcome.lanes],
    }
    return report("lab_area", [table(outcomes)], figures, bounds(outcomes), console)


def table(outcomes: Sequence[Outcome]) -> Table:
    """A line for every mix, kind of layer and way."""
    shown = Table(title="Time of prefill attention in one layer, by the way its batches are cut into chunks")
    for name in ("mix", "layer", "way"):
        shown.add_column(name)
    for name in ("ms", "time / fixed", "chunks", "padded rows", "peak MiB", "gather", "attend", "rest"):
        shown.add_column(name, justify="right")
    for outcome in outcomes:
        for way in outcome.lanes:
            row, over = outcome.row(way), outcome.ratio(way, FIXED_GROUPS)
            ratio = "1" if way == FIXED_GROUPS else f"{over.ratio:.3f} ({over.low:.3f} to {over.high:.3f})"
            cells = [f"{row['ms_per_batch']:,.1f}", ratio, f"{row['chunks_per_batch']:.1f}"]
            cells += [f"{row['padded_rows_per_batch']:,.0f}", f"{row['peak_workspace_mib']:,.1f}"]
            shares = [f"{row[part]:.1%}" for part in ("gather_share", "attend_share", "rest_share")]
            shown.add_row(outcome.mix, outcome.kind, str(way), *cells, *shares)
    return shown


def bounds(outcomes: Sequence[Outcome]) -> list[Bound]:
    """What the area plan promises: less time than fixed groups, and no more workspace."""
    found = []
    for outcome in outcomes:
        place = f"{outcome.mix}, {outcome.kind}"
        high = outcome.ratio(AREA_PLAN, FIXED_GROUPS).high
        found.append(Bound(name=f"area plan over fixed groups, upper end, {place}", value=high, bound=1))
        peaks = [outcome.lanes[way].peak_bytes for way in (AREA_PLAN, FIXED_GROUPS)]
        found.append(Bound(name=f"its peak workspace over theirs, {place}", value=peaks[0] / peaks[1], bound=1))
    return found


def conclusion(outcome: Outcome) -> str:
    """Which way a mix goes, in one line."""
    parts = [f"best found: {outcome.best}"]
    for way, other in ((AREA_PLAN, FIXED_GROUPS), (outcome.best, FIXED_GROUPS), (outcome.best, AREA_PLAN)):
        over = outcome.ratio(way, other)
        verdict = "faster" if over.high < 1 else "slower" if over.low > 1 else "no difference shown"
        if way != other:
            parts.append(f"{way} / {other} {over.ratio:.3f} ({over.low:.3f} to {over.high:.3f}), {verdict}")
    # The last two may be the same pair as the first.
    return f"{outcome.mix}, {outcome.kind}: " + "; ".join(dict.fromkeys(parts))


def explanation(outcomes: Sequence[Outcome]) -> str:
    """Why it goes that way, from the shares of the time."""
    ratios = [outcome.ratio(AREA_PLAN, FIXED_GROUPS) for outcome in outcomes]
    faster, slower = sum(one.high < 1 for one in ratios), sum(one.low > 1 for one in ratios)
    shares = [outcome.row(way)["gather_share"] for outcome in outcomes for way in outcome.lanes]
    rest = [median(outcome.row(way)["rest_share"] for outcome in outcomes) for way in (FIXED_GROUPS, AREA_PLAN)]
    return (
        f"Of {len(ratios)} mixes and layers the area plan is faster than groups of 4 in {faster}, slower in {slower}; "
        f"in the others no difference is shown. Why no more than that can be expected of the plain kernels: they copy "
        f"and attend to the rows that there are. Rows that a chunk spans beyond those are reserved but never read, so "
        f"padding costs memory and next to no time. Attention works on tiles of one request, which are the same "
        f"however a batch is cut, and the gather (here {min(shares):.1%} to {max(shares):.1%} of the time) copies the "
        f"same rows. "
        f"A way changes only the calls of each chunk and the combination of indices, 'rest' in the table: in the "
        f"median {rest[0]:.1%} of the time with groups of 4 and {rest[1]:.1%} with the area plan. A GPU has other "
        f"reasons, since each chunk costs it launches and a small one leaves it idle; nothing here speaks for it."
    )


if __name__ == "__main__":
    sys.exit(main())
