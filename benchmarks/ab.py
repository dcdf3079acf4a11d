"""Does a comparison on a real engine find what is there, and nothing where nothing is?

**A/A.** vLLM's default is compared with itself on the demo engine, ``SWEEPS`` sweeps' worth of pairs: in each, 24
trials by the demo's plan (2 to 4 pairs, a fair coin for which goes first), then three finalists with 5 fresh pairs
each, judged as ``chunksmith best`` judges them; and one sequential test over all search pairs of the sweep, in the
order in which they were measured. Any "better" is false.

**A/B.** The live knob ``mla_workspace_rows`` gives a true difference of about 5 %: of ``CAPS``, the one whose ratio to
the default comes nearest to that, by the median of ``CALIBRATION`` pairs each, is compared with the default anew, with
fresh prompts: with a sequential test (margin 2 %, error 1 %), and in ``FINAL_PAIRS`` pairs, which say what the
difference really is.

The pairs are real blocks: one request of ``INPUT_LEN`` tokens (A/B: ``AB_INPUT_LEN``), prefilled in steps of 1,024, so
that the context path runs. It is shorter than the demo's 8,192, so that the whole takes less than half an hour.

Run as ``python -m benchmarks.ab`` from the repository's root, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from orchestrator.analysis import DECISION_LEVEL
from orchestrator.cluster import RayEngine, ray_session
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import MeasuredBlock, PairedMeasurement, PairPlan, Role, measure_pairs
from orchestrator.measurement.stats import PooledNoise, SequentialTest, confirm, paired_ratio
from orchestrator.search import Point
from orchestrator.sweep import EnginePool, Serving, SweepSpec, WarmEngine, load_spec, seed_of
from orchestrator.workloads import FixedLength, RandomTokens

SPEC = Path("search_spaces/cpu_demo.yaml")
KNOB = "mla_workspace_rows"
INPUT_LEN, AB_INPUT_LEN = 2048, 4096
SWEEPS = 20
TRIALS = 24
FINALISTS = 3
CONFIRM_PAIRS = 5
CAPS = (2816, 2560, 2048, 1536, 1024)
CALIBRATION = 20
WANTED = 0.05
MOST_PAIRS = 200
FINAL_PAIRS = 40
DELTA, ERROR = 0.02, 0.01
METRIC = "median_ttft_ms"

Pairs = Callable[[Point, Point, PairPlan, PooledNoise | None, str], PairedMeasurement]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both, and report."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, width=120)
    tables: list[Table] = []
    bounds: list[Bound] = []
    figures: dict[str, Any] = {"input_len": options.input_len, "ab_input_len": AB_INPUT_LEN}
    with tempfile.TemporaryDirectory(prefix="ab-") as folder, ray_session():
        spec = _spec(options.input_len)
        pool = EnginePool(lambda: RayEngine(Path(folder), cpus=1.0), spec.engine_config(), {})
        try:
            engine = pool.get({})
            if not options.skip_aa:
                same = _same(_pairs(_spec(options.input_len), pool, engine), options.sweeps, console)
                figures["aa"] = same
                tables.append(_table_same(same))
                bounds.append(Bound(name="A/A: sequential verdicts of better", value=same["better"], bound=0))
                bounds.append(Bound(name="A/A: sweeps with a false winner", value=same["winners"], bound=0))
            found = _different(_pairs(_spec(AB_INPUT_LEN), pool, engine), console)
            figures["ab"] = found
            tables.append(_table_different(found))
            name = "A/B: the faster side is called better"
            bounds.append(Bound(name=name, value=found["found"], bound=1, sense="at least"))
        finally:
            pool.stop_all()
    return report("ab", tables, figures, bounds, console)


def _spec(input_len: int) -> SweepSpec:
    spec = load_spec(SPEC)
    workload = RandomTokens(prompts=1, input_len=FixedLength(tokens=input_len))
    return spec.model_copy(update={"workload": workload, "space": {KNOB: spec.space[KNOB]}})


def _pairs(spec: SweepSpec, pool: EnginePool, engine: WarmEngine) -> Pairs:
    """A function that measures pairs of two points on one engine."""
    serving = Serving(spec, pool)

    def pairs(
        candidate: Point, baseline: Point, plan: PairPlan, noise: PooledNoise | None, name: str
    ) -> PairedMeasurement:
        def run(role: Role, pair: int, dropped: bool) -> MeasuredBlock:
            seed = seed_of("ab", name, pair, dropped)
            requests = spec.block_workload().draw([seed], vocab_size=engine.info.vocab_size)
            point = candidate if role == "candidate" else baseline
            return serving.serve(
                engine, point, requests, spec.block_load(), role=role, pair=pair, seed=seed, dropped=dropped
            ).block

        return measure_pairs(run, plan, metric=METRIC, direction="minimize", noise=noise)

    return pairs


def _same(pairs: Pairs, sweeps: int, console: Console) -> dict[str, Any]:
    default: Point = {KNOB: None}
    widths: dict[int, list[float]] = defaultdict(list)
    better = winners = decided = count = 0
    all_logs: list[float] = []
    for sweep in range(sweeps):
        noise, test = PooledNoise(), SequentialTest(DELTA, error=ERROR)
        for trial in range(TRIALS):
            plan = PairPlan(min_pairs=2, max_pairs=4, half_width=0.03, coin_seed=seed_of("coin", sweep, trial))
            found = pairs(default, default, plan, noise if noise.dof else None, f"aa-{sweep}-{trial}")
            logs = _logs(found)
            for log in logs:
                test.add(-log)
            noise.add(logs)
            all_logs += logs
            count += found.interval.pairs
            if found.interval.low > 0:
                widths[found.interval.pairs].append(found.interval.high / found.interval.low)
        fixed = PairPlan(min_pairs=CONFIRM_PAIRS, max_pairs=CONFIRM_PAIRS)
        finals = [pairs(default, default, fixed, None, f"aa-{sweep}-final-{one}") for one in range(FINALISTS)]
        count += FINALISTS * CONFIRM_PAIRS
        intervals = confirm(
            [(one.values("candidate", METRIC), one.values("baseline", METRIC)) for one in finals],
            family_level=DECISION_LEVEL,
        )
        winners += any(interval.high < 1 for interval in intervals)
        better += test.verdict == "better"
        decided += test.verdict != "undecided"
        console.print(f"A/A sweep {sweep + 1} of {sweeps}: {test.pairs} pairs, {test.verdict}; {count} pairs so far")
    return {
        "sweeps": sweeps,
        "pairs": count,
        "better": better,
        "decided": decided,
        "winners": winners,
        "sd_log": float(np.std(all_logs, ddof=1)),
        "width": {pairs: float(np.median(ratios)) - 1 for pairs, ratios in sorted(widths.items())},
        "width_after": _width_after(all_logs),
    }


def _width_after(logs: Sequence[float]) -> dict[int, float]:
    """Median width (high / low - 1) of the 95 % interval after k pairs, over disjoint runs of k pairs."""
    widths = {}
    for k in (3, 5, 8, 12, 20, 40):
        runs = [logs[first : first + k] for first in range(0, len(logs) - k + 1, k)]
        found = [paired_ratio(np.exp(run).tolist(), [1.0] * k) for run in runs]
        widths[k] = float(np.median([one.high / one.low for one in found])) - 1
    return widths


def _different(pairs: Pairs, console: Console) -> dict[str, Any]:
    default: Point = {KNOB: None}
    plan = PairPlan(min_pairs=CALIBRATION, max_pairs=CALIBRATION)
    # Medians: a neighbour of the machine makes a pair in ten an outlier.
    ratios = {
        cap: math.exp(float(np.median(_logs(pairs({KNOB: cap}, default, plan, None, f"calibrate-{cap}")))))
        for cap in CAPS
    }
    cap = min(ratios, key=lambda cap: abs(abs(math.log(ratios[cap])) - WANTED))
    console.print("A/B: " + ", ".join(f"{cap} rows {ratio:.3f}" for cap, ratio in ratios.items()) + " by calibration")
    point: Point = {KNOB: cap}
    fast, slow = (point, default) if ratios[cap] < 1 else (default, point)
    test = PairPlan(min_pairs=2, max_pairs=MOST_PAIRS, delta=DELTA, error=ERROR, coin_seed=seed_of("coin", "ab"))
    tested = pairs(fast, slow, test, None, "ab-test")
    fixed = PairPlan(min_pairs=FINAL_PAIRS, max_pairs=FINAL_PAIRS)
    final = pairs(fast, slow, fixed, None, "ab-final")
    return {
        "fast": fast[KNOB],
        "slow": slow[KNOB],
        "calibrated": min(ratios[cap], 1 / ratios[cap]),
        "verdict": tested.verdict,
        "found": int(tested.verdict == "better"),
        "pairs": tested.interval.pairs,
        "sd_log": float(np.std(_logs(final), ddof=1)),
        "ratio": final.interval.ratio,
        "median_ratio": math.exp(float(np.median(_logs(final)))),
        "ratio_low": final.interval.low,
        "ratio_high": final.interval.high,
        "fixed_pairs": final.interval.pairs,
    }


def _logs(found: PairedMeasurement) -> list[float]:
    values = zip(found.values("candidate", METRIC), found.values("baseline", METRIC), strict=True)
    return [math.log(a) - math.log(b) for a, b in values]


def _table_same(same: dict[str, Any]) -> Table:
    table = Table(title="A/A")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("sweeps' worth of pairs", str(same["sweeps"]))
    table.add_row("pairs", str(same["pairs"]))
    table.add_row("sequential tests that said better", str(same["better"]))
    table.add_row("sequential tests that said anything", str(same["decided"]))
    table.add_row("sweeps with a false winner", str(same["winners"]))
    table.add_row("standard deviation of a pair's log ratio", f"{same['sd_log']:.2%}")
    for pairs, width in same["width_after"].items():
        table.add_row(f"median width of the 95 % interval after {pairs} pairs", f"{width:.2%}")
    return table


def _table_different(found: dict[str, Any]) -> Table:
    table = Table(title="A/B")
    for column in ("rows", "by calibration", "verdict", "after pairs", f"{found['fixed_pairs']} fresh pairs", "median"):
        table.add_column(column, justify="right")
    fast, slow = ("default" if cap is None else str(cap) for cap in (found["fast"], found["slow"]))
    interval = f"{found['ratio']:.3f} ({found['ratio_low']:.3f} to {found['ratio_high']:.3f})"
    table.add_row(
        f"{fast} against {slow}",
        f"{found['calibrated']:.3f}",
        found["verdict"],
        str(found["pairs"]),
        interval,
        f"{found['median_ratio']:.3f}",
    )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ab", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help="sweeps' worth of A/A pairs")
    parser.add_argument("--skip-aa", action="store_true", help="A/B alone")
    parser.add_argument("--input-len", type=int, default=INPUT_LEN, help="prompt tokens of the request")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChunksmithError as error:
        sys.exit(f"ab: {error}")
