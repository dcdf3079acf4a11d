"""How long do ask and tell take, with 8 knobs and 100, 1,000 and 10,000 trials behind? The medians of the portfolio are
at most 5, 10 and 25 ms; TPE is timed beside it.

Two spaces: a small one that is scored whole at every ask (4,374 points, up to 1,000 trials), and a large one of which
a part is scored (82,944 points). The trials behind are told before, without being timed.

Run as ``python -m benchmarks.sampler_time`` from the repository's root, on a machine that does nothing else; the time
of the CPU, which other work hardly changes, is printed beside, and has no bound.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import create_trial
from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from orchestrator.search.portfolio import PortfolioSampler

BOUNDS_MS = {100: 5.0, 1_000: 10.0, 10_000: 25.0}
SPACES = {"small": (2, 3, 3, 3, 3, 3, 3, 3), "large": (9, 4, 4, 4, 4, 4, 3, 3)}
TIMED = 40
Point = dict[str, int]


def points_of(levels: Sequence[int]) -> list[Point]:
    """Every combination of powers of two, so many of each knob."""
    names = [f"knob_{k}" for k in range(len(levels))]
    grid = itertools.product(*([2**level for level in range(count)] for count in levels))
    return [dict(zip(names, values, strict=True)) for values in grid]


def value(point: Point, rng: np.random.Generator) -> float:
    """A bowl on the log scale, with 2 % noise."""
    places = np.log2(list(point.values()))
    return float(np.exp(0.2 * np.sum((places - 1.0) ** 2) + 0.02 * rng.standard_normal()))


def timed_ms(sampler: BaseSampler, points: list[Point], trials: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each of 40 times ask and tell, with so many trials told before: by the clock, and of the CPU."""
    rng = np.random.default_rng(0)
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(sorted({point[name] for point in points})) for name in points[0]
    }
    study = optuna.create_study(sampler=sampler)
    for row in rng.permutation(len(points))[:trials]:
        told = create_trial(params=dict(points[row]), distributions=space, value=value(points[row], rng))
        study.add_trial(told)
    by_clock, of_cpu = [], []
    for number in range(TIMED + 3):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        trial = study.ask(space)
        asked, cpu_asked = time.perf_counter(), time.process_time()
        worth = value(trial.params, rng)
        tell, cpu_tell = time.perf_counter(), time.process_time()
        study.tell(trial, worth)
        if number >= 3:
            by_clock.append(1000.0 * (asked - begin + time.perf_counter() - tell))
            of_cpu.append(1000.0 * (cpu_asked - cpu_begin + time.process_time() - cpu_tell))
    return by_clock, of_cpu


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``python -m benchmarks.sampler_time``."""
    parser = argparse.ArgumentParser(description="Time of ask and tell.")
    parser.add_argument("--tpe", action="store_true", help="time TPE too (a minute more)")
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    table = Table(title="ask and tell, ms")
    for head in ("space", "trials", "sampler", "median", "p90", "longest", "median of CPU"):
        table.add_column(head)
    figures: dict[str, float] = {}
    bounds: list[Bound] = []
    for space, levels in SPACES.items():
        points = points_of(levels)
        for trials, bound in BOUNDS_MS.items():
            if trials * 2 > len(points):
                continue
            samplers: dict[str, BaseSampler] = {"portfolio": PortfolioSampler(points, seed=0)}
            if args.tpe and space == "large":
                samplers["tpe"] = TPESampler(seed=0)
            for name, sampler in samplers.items():
                spent, of_cpu = timed_ms(sampler, points, trials)
                median, cpu = float(np.median(spent)), float(np.median(of_cpu))
                shown = [*(float(np.quantile(spent, q)) for q in (0.5, 0.9, 1.0)), cpu]
                table.add_row(space, f"{trials:,}", name, *(f"{ms:.2f}" for ms in shown))
                figures[f"{name}, {space}, {trials}"] = median
                figures[f"{name}, {space}, {trials}, CPU"] = cpu
                if name == "portfolio":
                    bounds.append(Bound(name=f"{space} space, {trials:,} trials: median ms", value=median, bound=bound))
    return report("sampler_time", [table], figures, bounds, Console(width=120))


if __name__ == "__main__":
    sys.exit(main())
