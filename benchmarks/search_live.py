"""The portfolio beside TPE and a random order on a real engine, at an equal number of trials.

One engine serves everything: the tiny MLA model of ``search_spaces/cpu_demo.yaml`` with prompts of ``INPUT_LEN`` tokens
in place of 8,192, so that a block takes about half a second. Every search is a study of its own, of ``TRIALS`` of the
29 points, each of ``PAIRS`` pairs of blocks (point and baseline, fresh prompts); ``SEEDS`` seeds a sampler. The
searches take turns trial by trial, and the order turns too, so that a drift of the machine meets all alike.

What a search has found is judged by figures that are not its own: afterwards every point gets ``REFERENCE`` pairs of
fresh prompts. The gap of a search is how far the reference ratio of the point that it holds for best lies above the
smallest one; ``found after`` is the first trial whose point is within ``NEAR`` of that. Both are as blurred as the
reference is: its standard error is printed, and gaps below it mean a tie.

Run as ``python -m benchmarks.search_live`` from the repository's root, on a machine that does nothing else. The exit
code is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from orchestrator.cluster import RayEngine, ray_session
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import PairPlan
from orchestrator.measurement.stats import PooledNoise
from orchestrator.records import RunFolder
from orchestrator.search import Point
from orchestrator.sweep import EnginePool, SweepSpec, load_spec
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.progress import describe
from orchestrator.sweep.proposals import Proposals, make_proposals
from orchestrator.sweep.search_section import SamplerSection
from orchestrator.sweep.study import Told, TrialBook, open_study
from orchestrator.workloads import FixedLength, RandomTokens

SPEC: Final = Path("search_spaces/cpu_demo.yaml")
KINDS: Final = ("portfolio", "tpe", "random")
INPUT_LEN: Final = 4096
SEEDS: Final = 5
TRIALS: Final = 12
STARTUP: Final = 4
"""Trials before a model has its say, of either sampler: the default of 8 would be two thirds of the search."""
PAIRS: Final = 2
REFERENCE: Final = 6
NEAR: Final = 0.03
METRIC: Final = "median_ttft_ms"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    seeds: int
    trials: int
    pairs: int
    reference: int


FULL: Final = Size(SEEDS, TRIALS, PAIRS, REFERENCE)
QUICK: Final = Size(2, 8, 1, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, then measure the reference, and report."""
    options = _parser().parse_args(arguments)
    size = QUICK if options.quick else FULL
    console = Console(highlight=False, width=120)
    with tempfile.TemporaryDirectory(prefix="search-live-") as folder, ray_session():
        spec = _spec(size, "portfolio", 0)
        pool = EnginePool(lambda: RayEngine(Path(folder), cpus=1.0), spec.engine_config(), {})
        try:
            begin = time.perf_counter()
            pool.get({})
            console.print(f"engine started in {time.perf_counter() - begin:.0f} s")
            searches = [
                Search(_spec(size, kind, seed), pool, Path(folder)) for seed in range(size.seeds) for kind in KINDS
            ]
            _take_turns(searches, size.trials, console)
            reference = _reference(spec, pool, searches[0].proposals, size.reference, console)
        finally:
            pool.stop_all()
    return _report(searches, reference, size, console)


class Search:
    """One study on the shared engine.

    Attributes:
        points: What it measured, by trial, and ``ratios`` what it found there.
        ask_s: Seconds of each proposal.
    """

    def __init__(self, spec: SweepSpec, pool: EnginePool, folder: Path) -> None:
        self.kind, self.seed = spec.sampler.kind, spec.seed
        self.proposals = make_proposals(spec, spec.engine_config(), engines=2)
        run = RunFolder(folder / f"{self.kind}-{self.seed}")
        run.path.mkdir()
        study = open_study(run, name="search", proposals=self.proposals, directions=["minimize"])
        self._book = TrialBook(study, self.proposals, spec.trials)
        self._bench, self._plan, self._noise = Bench(spec, pool, lambda *_: None), _plan(spec), PooledNoise()
        self.points: list[Point] = []
        self.ratios: list[float] = []
        self.ask_s: list[float] = []

    def step(self) -> None:
        """One trial from its proposal to its result."""
        begin = time.perf_counter()
        asked = self._book.next()
        assert asked is not None
        self.ask_s.append(time.perf_counter() - begin)
        number, point = asked
        found, _ = self._bench.compare(number, "bench", point, self._plan)
        pairs = zip(found.values("candidate", METRIC), found.values("baseline", METRIC), strict=True)
        self._noise.add([math.log(ours) - math.log(theirs) for ours, theirs in pairs])
        variance = self._noise.sd**2 / found.interval.pairs if self._noise.dof else 0.0
        self._book.tell(number, Told(ratios=[found.interval.ratio], log_variance=variance))
        self.points.append(point)
        self.ratios.append(found.interval.ratio)

    @property
    def best(self) -> Point:
        """The point that it holds for best."""
        return self.points[int(np.argmin(self.ratios))]


@dataclass
class Reference:
    """Ratios of all points, by their description, from fresh pairs; ``error`` is the standard error of a logarithm."""

    ratios: dict[str, float] = field(default_factory=dict)
    error: float = 0.0

    def gap(self, point: Point) -> float:
        """How far a point lies above the best one, as a share."""
        return self.ratios[describe(point)] / min(self.ratios.values()) - 1.0

    def found_after(self, search: Search) -> int | None:
        """Trials of a search up to the first point near the best one; None when it never came there."""
        return next((at + 1 for at, point in enumerate(search.points) if self.gap(point) <= NEAR), None)


def _spec(size: Size, kind: Any, seed: int) -> SweepSpec:
    spec = load_spec(SPEC)
    changes: Mapping[str, Any] = {
        "workload": RandomTokens(prompts=1, input_len=FixedLength(tokens=INPUT_LEN)),
        "sampler": SamplerSection(kind=kind, startup=STARTUP),
        "blocks": spec.blocks.model_copy(update={"warmup": 0, "min_pairs": size.pairs, "max_pairs": size.pairs}),
        "seed": seed,
        "trials": size.trials,
    }
    return spec.model_copy(update=changes)


def _plan(spec: SweepSpec) -> PairPlan:
    return PairPlan(min_pairs=spec.blocks.min_pairs, max_pairs=spec.blocks.max_pairs, warmup_blocks=spec.blocks.warmup)


def _take_turns(searches: Sequence[Search], trials: int, console: Console) -> None:
    rng, begin = random.Random(0), time.perf_counter()
    for trial in range(trials):
        for search in rng.sample(searches, len(searches)):
            search.step()
        console.print(f"trial {trial + 1} of {trials} of {len(searches)} searches: {time.perf_counter() - begin:.0f} s")


def _reference(spec: SweepSpec, pool: EnginePool, proposals: Proposals, pairs: int, console: Console) -> Reference:
    bench, found, noise = Bench(spec, pool, lambda *_: None), Reference(), PooledNoise()
    plan = PairPlan(min_pairs=pairs, max_pairs=pairs, warmup_blocks=0)
    begin = time.perf_counter()
    for number, point in enumerate(proposals.points):
        # Numbers that no search used, so that the prompts are fresh.
        measured, _ = bench.compare(10_000 + number, "bench", point, plan)
        values = zip(measured.values("candidate", METRIC), measured.values("baseline", METRIC), strict=True)
        noise.add([math.log(ours) - math.log(theirs) for ours, theirs in values])
        found.ratios[describe(point)] = measured.interval.ratio
    found.error = noise.sd / math.sqrt(pairs)
    console.print(f"reference of {len(found.ratios)} points: {time.perf_counter() - begin:.0f} s")
    return found


def _report(searches: Sequence[Search], reference: Reference, size: Size, console: Console) -> int:
    by_kind = {kind: [one for one in searches if one.kind == kind] for kind in KINDS}
    gaps = {kind: [reference.gap(one.best) for one in found] for kind, found in by_kind.items()}
    after = {kind: [reference.found_after(one) for one in found] for kind, found in by_kind.items()}
    mean = {kind: statistics.fmean(found) for kind, found in gaps.items()}
    rival = min(mean[kind] for kind in KINDS if kind != "portfolio")
    figures = {
        "input_len": INPUT_LEN,
        "seeds": size.seeds,
        "trials": size.trials,
        "pairs": size.pairs,
        "points": len(reference.ratios),
        "reference_pairs": size.reference,
        "reference_error": reference.error,
        "near_points": sum(
            ratio <= (1.0 + NEAR) * min(reference.ratios.values()) for ratio in reference.ratios.values()
        ),
        "best": min(reference.ratios, key=lambda name: reference.ratios[name]),
        "best_ratio": min(reference.ratios.values()),
        "methods": {
            kind: {
                "gaps": gaps[kind],
                "found_after": after[kind],
                "mean_gap": mean[kind],
                "near_within": _near_within(after[kind], size.trials),
                "ask_ms": 1000.0 * statistics.median(second for one in by_kind[kind] for second in one.ask_s),
            }
            for kind in KINDS
        },
    }
    # A tie is no failure: what lies within twice the reference's own error cannot be told apart.
    bound = Bound(name="portfolio: mean gap beyond the best rival's", value=mean["portfolio"] - rival,
                  bound=2.0 * reference.error)  # fmt: skip
    tables = [_searches(searches, reference), _methods(figures, size)]
    return report("search_live", tables, figures, [bound], console)


def _near_within(after: Sequence[int | None], trials: int) -> dict[int, float]:
    """Share of the searches that had been near the best point after so many trials."""
    return {
        count: sum(one is not None and one <= count for one in after) / len(after) for count in range(1, trials + 1)
    }


def _searches(searches: Sequence[Search], reference: Reference) -> Table:
    table = Table(title="what each search found")
    for head in ("sampler", "seed", "best point", "its own ratio", "reference", "gap", "found after"):
        table.add_column(head, justify="left" if head in ("sampler", "best point") else "right")
    for one in sorted(searches, key=lambda one: (KINDS.index(one.kind), one.seed)):
        table.add_row(
            one.kind,
            str(one.seed),
            describe(one.best),
            f"{min(one.ratios):.3f}",
            f"{reference.ratios[describe(one.best)]:.3f}",
            f"{reference.gap(one.best):.1%}",
            str(reference.found_after(one) or "never"),
        )
    return table


def _methods(figures: Mapping[str, Any], size: Size) -> Table:
    error = figures["reference_error"]
    table = Table(title=f"{size.seeds} seeds of {size.trials} trials; the reference's standard error is {error:.1%}")
    shown = [count for count in (4, 6, 8, 10, 12) if count <= size.trials]
    heads = ["sampler", "mean gap", *(f"near after {count}" for count in shown), "median proposal"]
    for head in heads:
        table.add_column(head, justify="left" if head == "sampler" else "right")
    for kind, found in figures["methods"].items():
        near = [f"{found['near_within'][count]:.0%}" for count in shown]
        table.add_row(kind, f"{found['mean_gap']:.1%}", *near, f"{found['ask_ms']:.0f} ms")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="search_live", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK.seeds} seeds of {QUICK.trials} trials, 2 min")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChunksmithError as error:
        sys.exit(f"search_live: {error}")
