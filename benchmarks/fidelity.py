"""Does a fidelity ladder find what a sweep with full blocks finds, and for how many of its seconds?

Everything is measured, on the kernel lab: for each seed the same study is run twice in this process, once with a ladder
(planning arithmetic, then short blocks, then full ones) and once with full blocks at every point, by the sweep itself
and by its own rules; which of the two goes first changes from seed to seed. The winner of a study is its trial with the
best ratio to the baseline. Seconds are those of all blocks that were served, dropped ones included; the engine is
started once for all. The two winners are the same if they are one point, or if their ratios differ by at most 2 %, the
margin below which a sweep calls points equal (``blocks.delta``); that difference is taken from all full blocks of the
sweeps of all seeds, of which one study is a small part.

The study is ``search_spaces/lab_fidelity.yaml``: tokens of a step and rows of the workspace. It takes about twelve
minutes on one core; where the machine does other work, run it before that (``chrt -f 5``): what it compares is 3 %
apart.

    python -m benchmarks.fidelity [--quick] [--seeds 40]
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from orchestrator.engines import Engine, EngineConfig, EngineInfo, KnobValue
from orchestrator.engines.contract import BlockResult, StopRule
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.measurement.stats import paired_ratio
from orchestrator.records import FULL_FIDELITY, RunFolder, read_arrow
from orchestrator.sweep import Progress, Sweep, SweepSpec, load_spec
from orchestrator.sweep.search_section import SamplerSection
from orchestrator.sweep.spec import ConfirmSection, SoakSection
from orchestrator.workloads import Request, Schedule

SPEC = Path(__file__).resolve().parent.parent / "search_spaces" / "lab_fidelity.yaml"

SAME, SHARE = 0.95, 0.30
"""What the ladder has to reach: the same winner, and at most this share of the seconds."""
EQUAL = 0.02
QUICK_SEEDS = 2
RUNGS = ("planning", "short", "full")

Key = str
"""A point as JSON."""


class SharedLab:
    """One kernel lab for all studies: a start after the first changes nothing, and no stop ends it."""

    def __init__(self, folder: Path) -> None:
        self._engine: Engine = KernelLabEngine("lab", str(folder / "lab.log"))
        self._info: EngineInfo | None = None

    def start(self, config: EngineConfig) -> EngineInfo:
        if self._info is None:
            self._info = self._engine.start(config)
        return self._info

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return self._engine.retune(live_values)

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        return self._engine.run(requests, schedule, top2=top2, stop=stop)

    def stop(self) -> None:
        """Nothing: the next study goes on with it."""

    def abort(self) -> None:
        """End it for good."""
        self._engine.abort()


@dataclass(frozen=True)
class Study:
    """What one study found.

    Attributes:
        ratios: Of its full trials, by point.
        seconds: Of its blocks, by fidelity.
        pairs: Log ratios of its full trials' pairs, by point.
        climbed: Points of each rung that got a figure there, best first.
    """

    ratios: Mapping[Key, float]
    seconds: Mapping[str, float]
    pairs: Mapping[Key, Sequence[float]]
    climbed: Mapping[str, Sequence[Key]]

    @property
    def winner(self) -> Key:
        """Its point with the best ratio."""
        return min(self.ratios, key=lambda key: self.ratios[key])

    @property
    def total_s(self) -> float:
        """Seconds of all its blocks."""
        return sum(self.seconds.values())


def study_spec(seed: int, *, ladder: bool) -> SweepSpec:
    """The study of a seed: every point may become a trial, and nothing follows the search."""
    spec = load_spec(SPEC)
    changes: dict[str, Any] = {
        "seed": seed,
        "trials": spec.search_space().size,
        "sampler": SamplerSection(kind="random"),
        "confirm": ConfirmSection(points=0),
        "soak": SoakSection(rounds=0),
    }
    if not ladder:
        changes["fidelity"] = None
    return spec.model_copy(update=changes)


def run_study(spec: SweepSpec, lab: SharedLab, folder: Path) -> Study:
    """Run one study and read what it recorded."""
    run = RunFolder.create(folder)
    run.spec.write_text(spec.to_yaml())
    with run.lock(), Progress(Console(file=io.StringIO()), spec.trials, 0) as progress:
        Sweep(spec, run, lambda: lab, progress, engines=1).run()
    return read_study(run, spec.objective.metric)


def read_study(run: RunFolder, metric: str) -> Study:
    """What a run has on disk."""
    seconds: dict[str, float] = {}
    for row in read_arrow(run.path, "blocks").to_pylist():
        seconds[row["fidelity"]] = seconds.get(row["fidelity"], 0.0) + row["duration_s"]
    trials = [row for row in read_arrow(run.path, "trials").to_pylist() if row["outcome"] == "complete"]
    key_of = {row["trial"]: row["point"] for row in trials}
    climbed: dict[str, list[Key]] = {}
    for row in sorted(trials, key=lambda row: row["ratio"]):
        climbed.setdefault(row["fidelity"], []).append(row["point"])
    values: dict[Key, dict[str, list[float]]] = {}
    for row in read_arrow(run.path, "blocks", where=FULL_FIDELITY & ~pc.field("dropped")).sort_by("pair").to_pylist():
        if row["trial"] in key_of:
            sides = values.setdefault(key_of[row["trial"]], {"candidate": [], "baseline": []})
            sides[row["role"]].append(row[metric])
    return Study(
        ratios={row["point"]: row["ratio"] for row in trials if row["fidelity"] == "full"},
        seconds=seconds,
        pairs={
            key: [math.log(a / b) for a, b in zip(sides["candidate"], sides["baseline"], strict=True)]
            for key, sides in values.items()
        },
        climbed=climbed,
    )


def pooled(studies: Sequence[Study]) -> dict[Key, tuple[float, float, float]]:
    """Ratio of every point with its interval (95 %), from the pairs of all studies."""
    logs: dict[Key, list[float]] = {}
    for study in studies:
        for key, own in study.pairs.items():
            logs.setdefault(key, []).extend(own)
    found = {}
    for key, own in logs.items():
        interval = paired_ratio([math.exp(one) for one in own], [1.0] * len(own))
        found[key] = (interval.ratio, interval.low, interval.high)
    return found


def is_same(one: Key, other: Key, truth: Mapping[Key, tuple[float, float, float]]) -> bool:
    """Whether two points are one, or equal within the margin."""
    return one == other or abs(math.log(truth[one][0] / truth[other][0])) <= math.log1p(EQUAL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all seeds; return 0 if both bounds hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seeds: proves the plumbing")
    given = parser.parse_args(arguments)
    console = Console(width=150)
    ladders: list[Study] = []
    sweeps: list[Study] = []
    with tempfile.TemporaryDirectory() as scratch:
        lab = SharedLab(Path(scratch))
        try:
            for seed in range(QUICK_SEEDS if given.quick else given.seeds):
                for ladder in (True, False) if seed % 2 else (False, True):
                    folder = Path(scratch) / f"{seed}-{ladder}"
                    (ladders if ladder else sweeps).append(run_study(study_spec(seed, ladder=ladder), lab, folder))
                console.print(f"seed {seed}: {described(ladders[-1])} with the ladder, {described(sweeps[-1])} without")
        finally:
            lab.abort()
    truth = pooled(sweeps)
    return report(
        "fidelity",
        [points_table(ladders, sweeps, truth), rungs_table(ladders)],
        *judged(ladders, sweeps, truth),
        console,
    )


def described(study: Study) -> str:
    """Winner and seconds of a study in one line."""
    return f"{values_of(study.winner)} in {study.total_s:.1f} s"


def values_of(key: Key) -> str:
    """A point as ``knob=value, ...``."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(key).items())


def judged(
    ladders: Sequence[Study], sweeps: Sequence[Study], truth: Mapping[Key, tuple[float, float, float]]
) -> tuple[dict[str, Any], list[Bound]]:
    """Figures and bounds."""
    pairs = list(zip(ladders, sweeps, strict=True))
    best = min(truth, key=lambda key: truth[key][0])
    tolerant = sum(is_same(one.winner, other.winner, truth) for one, other in pairs) / len(pairs)
    seconds = sum(one.total_s for one in ladders) / sum(other.total_s for other in sweeps)
    shares = [one.total_s / other.total_s for one, other in pairs]
    figures = {
        "seeds": len(pairs),
        "points": len(truth),
        "rungs": RUNGS,
        "same point": sum(one.winner == other.winner for one, other in pairs) / len(pairs),
        "same within 2 %": tolerant,
        "best of all, ladder": sum(is_same(one.winner, best, truth) for one in ladders) / len(pairs),
        "best of all, full": sum(is_same(other.winner, best, truth) for other in sweeps) / len(pairs),
        "loss to the best, ladder": max(truth[one.winner][0] for one in ladders) / truth[best][0] - 1,
        "loss to the best, full": max(truth[other.winner][0] for other in sweeps) / truth[best][0] - 1,
        "seconds, ladder": median(one.total_s for one in ladders),
        "seconds, full": median(other.total_s for other in sweeps),
        "share of seconds, largest": max(shares),
    }
    return figures, [
        Bound(name="seeds with the winner of full fidelity", value=tolerant, bound=SAME, sense="at least"),
        Bound(name="seconds of the ladder over those of full fidelity", value=seconds, bound=SHARE),
    ]


def points_table(
    ladders: Sequence[Study], sweeps: Sequence[Study], truth: Mapping[Key, tuple[float, float, float]]
) -> Table:
    """The best points, by all full blocks, and how often each way chose them."""
    shown = Table(title="Ratio to the baseline from the full blocks of all seeds, and the winners of each seed")
    for name in ("point", "ratio", "ladder won", "full won"):
        shown.add_column(name, justify="left" if name == "point" else "right")
    for key in sorted(truth, key=lambda key: truth[key][0])[:10]:
        ratio, low, high = truth[key]
        wins = [str(sum(study.winner == key for study in studies)) for studies in (ladders, sweeps)]
        shown.add_row(values_of(key), f"{ratio:.3f} ({low:.3f} to {high:.3f})", *wins)
    return shown


def rungs_table(ladders: Sequence[Study]) -> Table:
    """How many points each rung saw, what it took, and where the ladder's own winner ranked on it."""
    shown = Table(title="Rungs of the ladder, median over the seeds")
    for name in ("rung", "points", "seconds", "rank of the winner"):
        shown.add_column(name, justify="left" if name == "rung" else "right")
    for rung in RUNGS:
        counts = median(len(study.climbed[rung]) for study in ladders)
        seconds = median(study.seconds.get(rung, 0.0) for study in ladders)
        rank = median(study.climbed[rung].index(study.winner) + 1 for study in ladders)
        shown.add_row(rung, f"{counts:g}", f"{seconds:.2f}", f"{rank:g}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
