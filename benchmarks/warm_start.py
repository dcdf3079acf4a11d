"""Does the memory of an earlier study save evaluations where it helps, and cost little where it misleads?

A target is searched by the portfolio alone (cold) and by the portfolio with what an earlier study of a source measured:
the first 80 evaluations of a cold search there, as a real study leaves them (``study``), or the source's whole table
(``table``). Pairs of target and source:

- made-up tables and their twins, a kernel on another GPU: the same model with its numbers drawn a little apart;
- sources that mislead: unrelated, inverted, and one that is right about bad points alone;
- each measured table of a folder with each other of the same knobs as its source.

Which pairs should help is told before any search: those of a rank correlation of 0.7 or more that are not made to
mislead. On these at least 2 times fewer evaluations are required, on all others at most 1.1 times more; the ratio of a
group is the geometric mean of its pairs, and no pair that misleads may be clearly over 1.1 (the lower end of its
interval). A ratio is that of two restricted means: of the evaluations until the gap is at most the goal, 150 where that
was not reached by then. The goal is 5 %, or what the cold search has in the median after 80 evaluations where that is
more. Intervals are 95 %, by the percentile bootstrap over the seeds.

The design was settled on other seeds of the made-up tables, and on the two measured ones that are at hand; but that a
run has to rank the better half of the points too, on four pairs of the benchmark itself, by how often the memory spoke.

Run as ``python -m benchmarks.warm_start`` from the repository's root. It takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState
from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from benchmarks._t4 import TuningTable, read_tables
from benchmarks._twins import MISLEADING, Pair, misleading, twins
from orchestrator.search.memory import EarlierRun, MemorySampler
from orchestrator.search.portfolio import PortfolioSampler
from orchestrator.search.portfolio.features import Points

TABLES = Path("../shared/data/t4")
TWINS = (("kernel", 10, 0.4), ("kernel", 11, 0.4), ("additive", 10, 0.25), ("additive", 11, 0.25), ("trap", 10, 0.25))
MISLED = ("kernel_10", "additive_10")
MOST, STUDY, WITHIN = 150, 80, 0.05
VARIANTS = ("study", "table")
_RESAMPLES = 2000
Floats = NDArray[np.float64]


def search(table: TuningTable, sampler: BaseSampler, evaluations: int, goal: float) -> list[int]:
    """The rows that a sampler tries, until the gap is at most a goal."""
    points = Points.of(table.points)
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(levels) for name, levels in zip(points.names, points.levels, strict=True)
    }
    study = optuna.create_study(sampler=sampler)
    tried: list[int] = []
    for _ in range(evaluations):
        trial = study.ask(space)
        row = points.row_of(trial.params)
        assert row is not None
        tried.append(row)
        time = float(table.times[row])
        if not np.isfinite(time):
            study.tell(trial, state=TrialState.FAIL)
            continue
        study.tell(trial, time)
        if time <= (1.0 + goal) * table.best:
            break
    return tried


def until(tried: Sequence[int], table: TuningTable, goal: float) -> int:
    """Evaluations until the gap is at most a goal; ``MOST`` when it never is."""
    reached = np.flatnonzero(table.times[list(tried)] <= (1.0 + goal) * table.best)
    return int(reached[0]) + 1 if len(reached) else MOST


class Colds:
    """Cold searches, each made once."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = seeds
        self._tried: dict[str, list[list[int]]] = {}

    def of(self, table: TuningTable) -> list[list[int]]:
        """Of each seed, until the gap is at most 5 %, or ``MOST`` evaluations."""
        if table.name not in self._tried:
            made = (PortfolioSampler(table.points, seed=seed) for seed in self.seeds)
            self._tried[table.name] = [search(table, sampler, MOST, WITHIN) for sampler in made]
        return self._tried[table.name]

    def goal(self, table: TuningTable) -> float:
        """The median gap after ``STUDY`` evaluations, at least 5 %."""
        gaps = [table.times[tried[:STUDY]].min() / table.best - 1.0 for tried in self.of(table)]
        return max(WITHIN, float(np.median(gaps)))


@dataclass(frozen=True)
class Outcome:
    """Evaluations by seed until the goal: cold, and from each variant of the source."""

    pair: Pair
    goal: float
    cold: Floats
    warm: dict[str, Floats]

    def ratio(self, variant: str, rng: np.random.Generator | None = None) -> float:
        """Of the restricted means; with a generator that of a resample of the seeds."""
        warm, cold = self.warm[variant], self.cold
        if rng is not None:
            warm, cold = rng.choice(warm, len(warm)), rng.choice(cold, len(cold))
        return float(warm.mean() / cold.mean())


def measure(pair: Pair, colds: Colds) -> Outcome:
    """Search a target cold and warm."""
    target, goal = pair.target, colds.goal(pair.target)
    cold = [until(tried, target, goal) for tried in colds.of(target)]
    warm: dict[str, list[int]] = {variant: [] for variant in VARIANTS}
    for seed in colds.seeds:
        for variant in VARIANTS:
            # The seed of the earlier study is not that of the search that remembers it.
            known = None if variant == "table" else PortfolioSampler(pair.source.points, seed=1000 + seed)
            rows = range(len(pair.source.points)) if known is None else search(pair.source, known, STUDY, -1.0)
            inner = PortfolioSampler(target.points, seed=seed)
            sampler = MemorySampler(inner, target.points, [remembered(pair.source, rows)], seed=seed)
            warm[variant].append(until(search(target, sampler, MOST, goal), target, goal))
    return Outcome(pair, goal, np.array(cold, float), {name: np.array(found, float) for name, found in warm.items()})


def remembered(source: TuningTable, rows: Iterable[int]) -> EarlierRun:
    """What a study of a source leaves that tried some of its rows."""
    worked = [row for row in rows if np.isfinite(source.times[row])]
    return EarlierRun(source.name, [source.points[row] for row in worked], np.log(source.times[worked]))


def pairs_of(folder: Path) -> Iterator[Pair]:
    """Every pair of the benchmark."""
    for kind, number, share in TWINS:
        pair = twins(kind, number, share)
        yield pair
        if pair.target.name in MISLED:
            for name in MISLEADING:
                yield misleading(name, pair.target, number)
    for target, source in itertools.permutations(read_tables(folder), 2):
        if set(target.points[0]) & set(source.points[0]):
            yield Pair(f"from {source.name}", target, source)


def pooled(outcomes: Sequence[Outcome], variant: str) -> tuple[float, float, float]:
    """Geometric mean of the ratios, with its interval."""

    def mean(rng: np.random.Generator | None) -> float:
        return float(np.exp(np.mean([np.log(one.ratio(variant, rng)) for one in outcomes])))

    rng = np.random.default_rng(0)
    drawn = [mean(rng) for _ in range(_RESAMPLES)]
    return mean(None), float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def bounds_of(outcomes: Sequence[Outcome]) -> Iterator[Bound]:
    """The bounds on what helps and on what misleads, for each variant."""
    helps = [one for one in outcomes if one.pair.is_related]
    misleads = [one for one in outcomes if not one.pair.is_related]
    for variant in VARIANTS:
        yield Bound(name=f"{variant}: ratio where it helps", value=pooled(helps, variant)[0], bound=0.5)
        yield Bound(name=f"{variant}: ratio where it misleads", value=pooled(misleads, variant)[0], bound=1.1)
        lowest = max(pooled([one], variant)[1] for one in misleads)
        yield Bound(name=f"{variant}: lower limit of the worst pair that misleads", value=lowest, bound=1.1)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """Every pair, and both groups."""
    table = Table(title=f"Evaluations until the goal, restricted mean at {MOST}; ratio to cold with its interval")
    for head in ("target", "source", "rank correlation", "goal", "cold", *VARIANTS):
        table.add_column(head)
    for one in outcomes:
        pair = one.pair
        cells = [f"{one.warm[name].mean():.1f}: {_ratio(pooled([one], name))}" for name in VARIANTS]
        known = f"{pair.correlation:.2f} {'helps' if pair.is_related else 'misleads'}"
        table.add_row(pair.target.name, pair.name, known, f"{one.goal:.1%}", f"{one.cold.mean():.1f}", *cells)
    for is_related, name in ((True, "all that help"), (False, "all that mislead")):
        group = [one for one in outcomes if one.pair.is_related == is_related]
        table.add_row(name, "", "", "", "", *(_ratio(pooled(group, variant)) for variant in VARIANTS))
    return table


def _ratio(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m benchmarks.warm_start``."""
    parser = argparse.ArgumentParser(description="The portfolio with the memory of an earlier study, and without.")
    parser.add_argument("--folder", type=Path, default=TABLES, help="folder of T4 tables (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds (default: %(default)s)")
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    colds = Colds(range(args.seeds))
    outcomes = [measure(pair, colds) for pair in pairs_of(args.folder)]
    figures = {
        f"{one.pair.target.name}, {one.pair.name}": {
            "correlation": one.pair.correlation,
            "goal": one.goal,
            "cold": one.cold.tolist(),
            **{name: one.warm[name].tolist() for name in VARIANTS},
        }
        for one in outcomes
    }
    return report("warm_start", [table_of(outcomes)], figures, list(bounds_of(outcomes)), Console(width=170))


if __name__ == "__main__":
    sys.exit(main())
