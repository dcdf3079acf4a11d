"""Do the statistics keep their promises? Simulated studies with fixed seeds, in which the truth is known.

Four promises, each on normal, heavy-tailed (Student t3, lognormal) and autocorrelated noise:

- nominal 95 % intervals cover the truth in 93 to 97 % of the studies, also for a p99;
- an A/A comparison is called "better" in at most 1 %;
- a difference of 2 % under 5 % noise of every block, independent on both sides, is decided rightly in at least 95 %,
  with at most half the pairs of a fixed number of pairs;
- over-saturation is called in 15 s (median), and a stable load is stopped in at most 1 %.

The fixed design gets the error bounds that the sequential test has by proof, ``error / 2`` on both sides, and knows
the noise beforehand: ``((z_alpha + z_beta) * sd / difference)^2`` pairs (a one-sided z test). With laxer errors (1 %,
and 95 % power) it needs only 201. No sequential test with those errors can do with half of that: Wald's bound is 0.53.
The mean pairs of this one, which keeps its stricter errors, are printed against that number too.

Lines without a bound are there to compare: what a rival method does on the same studies, or what happens outside the
conditions that a method states. Over-saturation at 3 requests/s or 1.2 times the capacity takes longer than 15 s for
lack of requests, not of method: the excess has to outgrow the random walk of the queue. With prefill times of CV 2, one
huge prompt at 95 % load looks like over-saturation more often than 1 %. A log ratio that is skewed, because one side
alone stalls now and then, is covered a little too rarely.

Near its bound, and beyond it with some seeds: the paired t of 8 pairs on lognormal noise covers about 97 %. Heavy tails
inflate the variance estimate of a few symmetric log ratios; the interval is wider than it need be, on the safe side.

Run as ``python -m benchmarks.stats`` from the repository's root; ``--quick`` has too few studies for the bounds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import ndtr, ndtri, stdtrit

from benchmarks._report import Bound, report
from benchmarks._stats_noise import NOISES, Noise, Queue, ar1, normal, pairs, student_t3
from orchestrator.analysis.best import DECISION_LEVEL, FAMILY_LEVEL
from orchestrator.measurement.stats import (
    SequentialTest,
    baseline_drift,
    blocked_percentile_interval,
    bootstrap_ratio,
    confirm,
    find_steady_state,
    paired_ratio,
    percentile_interval,
    select,
)
from orchestrator.measurement.stats.saturation import MAX_POINTS, MIN_POINTS, POINT_REQUESTS, POINT_S, rises

STUDIES, QUICK_STUDIES = 2000, 200
COVERAGE = (0.93, 0.97)
DIFFERENCE = 0.02
ERROR = 0.01
MAX_PAIRS = 1500

SEED = 20261130
"""Settings and bounds were fixed before a study with it was run, and not changed afterwards."""

_seed: ContextVar[int] = ContextVar("_seed", default=SEED)

Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One figure: what was measured by which method on which noise, and the bounds that it has to keep, if any."""

    what: str
    noise: str
    method: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    def figure(self) -> dict[str, str | float | None]:
        value = float(self.value) if math.isfinite(self.value) else None  # JSON knows no infinity.
        return {"what": self.what, "noise": self.noise, "method": self.method, "value": value}

    def bounds(self) -> list[Bound]:
        name = f"{self.what}, {self.noise}, {self.method}"
        found = []
        if self.at_least is not None:
            found.append(Bound(name=name, value=float(self.value), bound=self.at_least, sense="at least"))
        if self.at_most is not None:
            found.append(Bound(name=name, value=float(self.value), bound=self.at_most, sense="at most"))
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all studies and report; the exit code is 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STUDIES} studies a line instead of {STUDIES}")
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of every study; {SEED} if omitted")
    options = parser.parse_args(arguments)
    studies = QUICK_STUDIES if options.quick else STUDIES
    _seed.set(options.seed)
    groups: list[tuple[str, Callable[[int], list[Line]]]] = [
        ("Coverage of 95 % intervals of a ratio", ratio_coverage),
        ("Coverage of 95 % intervals of a percentile", percentile_coverage),
        ("Drift, warm-up and the choice at the end", other_lines),
        ("Sequential test", sequential_lines),
        ("Over-saturation", saturation_lines),
    ]
    console = Console(width=150)
    tables, lines = [], []
    for title, group in groups:
        found = group(studies)
        tables.append(_table(f"{title}, {studies:,} studies a line", found))
        lines.extend(found)
    figures = {
        "studies": studies,
        "seed": options.seed,
        "lines": [line.figure() for line in lines],
    }
    return report("stats", tables, figures, [bound for line in lines for bound in line.bounds()], console)


def _generator(*key: int) -> np.random.Generator:
    """The random numbers of one line."""
    return np.random.default_rng([_seed.get(), *key])


def ratio_coverage(studies: int) -> list[Line]:
    """Blocks with 5 % noise in pairs, and log ratios that resemble their neighbours."""
    lines = []
    for seed, (name, noise) in enumerate(NOISES.items()):
        random = _generator(1, seed)
        for label, drift in ((name, 0.0), (f"{name}, machine AR(0.9)", 0.05)):
            data = pairs(random, (studies, 8), noise, drift=drift, coin=False)
            got = [paired_ratio(a, b) for a, b in zip(data[0].tolist(), data[1].tolist(), strict=True)]
            lines.append(_coverage("ratio, 8 pairs", label, "paired t", [(i.low, i.high) for i in got], 1.0))
    for seed, (count, stretch, phi) in enumerate(((40, 5, 0.3), (100, 12, 0.6))):
        for which, (name, noise) in enumerate(NOISES.items()):
            random = _generator(2, seed, which)
            sides = [np.exp(0.05 * ar1(random, (studies, count), phi, noise)).tolist() for _ in range(2)]
            what, label = f"ratio, {count} pairs", f"{name}, pairs AR({phi})"
            booted = [bootstrap_ratio(a, b, stretch=stretch) for a, b in zip(*sides, strict=True)]
            lines.append(
                _coverage(what, label, f"bootstrap, stretch {stretch}", [(i.low, i.high) for i in booted], 1.0)
            )
            plain = [paired_ratio(a, b) for a, b in zip(*sides, strict=True)]
            lines.append(_rival(what, label, "paired t", [(i.low, i.high) for i in plain], 1.0))
        # Only the candidate stalls now and then: its log ratio is skewed.
        skewed = [bootstrap_ratio(a, [1.0] * count, stretch=stretch) for a in sides[0]]
        label = f"lognormal on the candidate alone, AR({phi})"
        lines.append(_rival(what, label, f"bootstrap, stretch {stretch}", [(i.low, i.high) for i in skewed], 1.0))
    return lines


def percentile_coverage(studies: int) -> list[Line]:
    """Requests' latencies: ``exp(x)`` with ``x`` normal, and a Student t3."""
    lines = []
    tails: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [("lognormal", np.exp), ("Student t3", _to_t3)]
    for seed, (tail, shape) in enumerate(tails):
        for percentile in (50.0, 90.0, 99.0):
            truth = float(shape(ndtri(percentile / 100)))
            values = shape(normal(_generator(3, seed, int(percentile)), (studies, 1000)))
            got = [percentile_interval(study, percentile) for study in values]
            what = f"p{percentile:g}, 1,000 requests"
            lines.append(_coverage(what, tail, "order statistics", [(i.low, i.high) for i in got], truth))
    # Blocks: (blocks, requests a block, AR inside, sd of the level between blocks).
    for which, (blocks, size, phi, level) in enumerate(((20, 100, 0.5, 0.0), (20, 100, 0.5, 0.3), (20, 500, 0.9, 0.0))):
        for seed, (tail, shape) in enumerate(tails):
            random = _generator(4, seed, which)
            score = ar1(random, (studies, blocks * size), phi).reshape(studies, blocks, size)
            values = shape((score + level * normal(random, (studies, blocks, 1))) / math.sqrt(1 + level**2))
            noise = f"{tail}, AR({phi})" + (f", block levels {level:g} sd" if level else "")
            for percentile in (50.0, 90.0, 99.0):
                what, truth = f"p{percentile:g}, {blocks} x {size} requests", float(shape(ndtri(percentile / 100)))
                got = [blocked_percentile_interval(study, percentile) for study in values]
                lines.append(_coverage(what, noise, "blocks", [(i.low, i.high) for i in got], truth))
            flat = [percentile_interval(study.ravel(), 99.0) for study in values]
            lines.append(_rival(what, noise, "order statistics", [(i.low, i.high) for i in flat], truth))
            booted = [_bootstrap_percentile(study, 99.0, random) for study in values]
            lines.append(_rival(what, noise, "block bootstrap", booted, truth))
    return lines


def other_lines(studies: int) -> list[Line]:
    """Drift of 10 %, a warm-up of +50 %, and the answer of a sweep in which nothing is better."""
    lines = []
    for name, noise in (("normal", normal), ("Student t3", student_t3)):
        random = _generator(5, len(name))
        series = np.exp(0.05 * ar1(random, (4 * studies, 40), 0.6, noise) + np.linspace(0, math.log(1.1), 40))
        got = [baseline_drift(values, range(40)) for values in series]
        lines.append(
            _coverage("drift, 40 blocks", f"{name}, AR(0.6)", "line, AR(1)", [(d.low, d.high) for d in got], 1.1)
        )

    random = _generator(6)
    warmup = 0.5 * np.exp(-np.arange(500) / 30)
    series = 1 + warmup + 0.1 * ar1(random, (studies, 500), 0.5, student_t3)
    cuts = [find_steady_state(values) for values in series]
    kept = [values[cut.first :].mean() for values, cut in zip(series, cuts, strict=True)]
    what = "warm-up, bias of the mean, 500 values"
    lines.append(Line(what, "t3, AR(0.5)", "nothing cut", float(series.mean() - 1)))
    lines.append(Line(what, "t3, AR(0.5)", "MSER-5", float(np.mean(kept)) - 1))
    lines.append(Line("steady state not seen", "t3, AR(0.5)", "MSER-5", float(np.mean([not c.reached for c in cuts]))))

    # A sweep in which nothing is better: 20 points of 4 pairs, the best 4 confirmed with 12 fresh pairs.
    random = _generator(7)
    many = 3 * studies
    candidate, baseline = pairs(random, (many * 20, 4), normal)
    found = np.log(candidate / baseline).mean(axis=1).reshape(many, 20).argmin(axis=1) + 20 * np.arange(many)
    naive = [paired_ratio(candidate[row].tolist(), baseline[row].tolist()) for row in found]
    lines.append(_rival("ratio of the best of 20", "normal", "search pairs", [(i.low, i.high) for i in naive], 1.0))
    lines.append(Line("false better, A/A sweep", "normal", "search pairs", float(np.mean([i.high < 1 for i in naive]))))
    fresh = np.stack(pairs(random, (many * 4, 12), student_t3)).reshape(2, many, 4, 12).tolist()
    for family in (FAMILY_LEVEL, DECISION_LEVEL):
        sets = [confirm(list(zip(a, b, strict=True)), family_level=family) for a, b in zip(*fresh, strict=True)]
        method = f"4 confirmed, family {family:g}"
        together = float(np.mean([all(i.low <= 1 <= i.high for i in four) for four in sets]))
        lines.append(Line("all 4 intervals hold", "Student t3", method, together, at_least=family - 0.02))
        wrong = float(np.mean([any(i.high < 1 for i in four) for four in sets]))
        lines.append(
            Line(
                "false better, A/A sweep",
                "Student t3",
                method,
                wrong,
                at_most=0.01 if family == DECISION_LEVEL else None,
            )
        )

    random = _generator(8)
    truths = 0.05 * normal(random, (studies, 4))
    candidate, baseline = pairs(random, (studies * 4, 6), normal)
    ratios = (candidate / baseline).reshape(studies, 4, 6) * np.exp(truths)[..., None]
    picks = [select([paired_ratio(r, [1.0] * 6) for r in study], "maximize") for study in ratios.tolist()]
    right = np.mean([pick.chosen == truth.argmax() for pick, truth in zip(picks, truths, strict=True)])
    loss = np.mean([truth.max() - truth[pick.chosen] for pick, truth in zip(picks, truths, strict=True)])
    what = "4 candidates that differ by 5 % sd, 6 pairs"
    lines.append(Line(f"{what}: best chosen", "normal", "stated", _mean(p.probability_best[p.chosen] for p in picks)))
    lines.append(Line(f"{what}: best chosen", "normal", "real", float(right)))
    lines.append(Line(f"{what}: loss", "normal", "stated", _mean(p.expected_loss[p.chosen] for p in picks)))
    lines.append(Line(f"{what}: loss", "normal", "real", float(loss)))
    return lines


def sequential_lines(studies: int) -> list[Line]:
    """The same pairs without a difference, and with one of 2 %."""
    lines = []
    scenes: list[tuple[str, Noise, float, bool]] = [(name, noise, 0.0, True) for name, noise in NOISES.items()]
    scenes += [
        ("Student t3, machine AR(0.9), coin", student_t3, 0.05, True),
        ("Student t3, machine AR(0.9), alternating", student_t3, 0.05, False),
    ]
    for seed, (name, noise, drift, coin) in enumerate(scenes):
        random = _generator(9, seed)
        candidate, baseline = pairs(random, (studies, MAX_PAIRS), noise, drift=drift, coin=coin)
        same = np.log(candidate / baseline)
        verdicts, used = _decide(same)
        lines.append(Line("A/A, called better", name, "sequential", verdicts.count("better") / studies, at_most=0.01))
        lines.append(Line("A/A, called worse", name, "sequential", verdicts.count("worse") / studies, at_most=0.01))
        lines.append(Line("A/A, mean pairs", name, "sequential", used))

        verdicts, used = _decide(same + math.log1p(DIFFERENCE))
        right = verdicts.count("better") / studies
        lines.append(Line("2 % better, called better", name, "sequential", right, at_least=0.95))
        lines.append(Line("2 % better, mean pairs", name, "sequential", used))
        # The design has the independent noise of the blocks: 5 % each, also where the machine adds to it.
        sd = 0.05 * math.sqrt(2)
        if not drift:
            power = min(right, 1 - ERROR / 2)
            fixed = ((ndtri(1 - ERROR / 2) + ndtri(power)) * sd / math.log1p(DIFFERENCE)) ** 2
            lines.append(Line("2 % better, pairs / fixed, same errors", name, "sequential", used / fixed, at_most=0.5))
            lax = ((ndtri(0.99) + ndtri(0.95)) * sd / math.log1p(DIFFERENCE)) ** 2
            lines.append(Line("2 % better, pairs / fixed, 1 % and 95 %", name, "sequential", used / lax))
    return lines


def saturation_lines(studies: int) -> list[Line]:
    """Stable and overloaded queues; a call on a stable one is false."""
    lines = []
    # (capacity, CV of the prefill, heaviest stable load and lightest overload that have to be told apart)
    for capacity, cv, stable, overload in (
        (10.0, 1.0, 0.95, 1.5),
        (40.0, 1.0, 0.95, 1.5),
        (10.0, 2.0, 0.9, 2.0),
        (3.0, 1.0, 0.95, 2.5),
    ):
        noise = f"{capacity:g} req/s, prefill CV {cv:g}"
        for load in (0.8, 0.9, 0.95, 1.2, 1.5, 2.0):
            random = _generator(10, int(capacity), int(cv), int(100 * load))
            queue = Queue(capacity=capacity, load=load, cv=cv, seconds=120.0 if load < 1 else 60.0)
            called = _call_saturation(queue, random, studies)
            if load < 1:
                share = float(np.isfinite(called).mean())
                bound = 0.01 if load <= stable else None
                lines.append(Line(f"stopped in 120 s at {load:g} load", noise, "slopes", share, at_most=bound))
            else:
                bound = 15.0 if load >= overload else None
                lines.append(
                    Line(
                        f"median s to the call at {load:g} load",
                        noise,
                        "slopes",
                        float(np.median(called)),
                        at_most=bound,
                    )
                )
    return lines


def _to_t3(normal_score: np.ndarray) -> np.ndarray:
    return np.asarray(stdtrit(3, ndtr(normal_score)))


def _decide(log_gains: np.ndarray) -> tuple[list[str], float]:
    """Verdicts of all studies, and the mean pairs that they took."""
    verdicts: list[str] = []
    used = 0
    for study in log_gains.tolist():
        test = SequentialTest(DIFFERENCE, error=ERROR)
        for log_gain in study:
            if test.add(log_gain) != "undecided":
                break
        verdicts.append(test.verdict)
        used += test.pairs
    return verdicts, used / len(verdicts)


def _call_saturation(queue: Queue, random: np.random.Generator, studies: int) -> np.ndarray:
    """Seconds until each study is called over-saturated, infinite where it never is. One look a point."""
    step_s = max(POINT_S, POINT_REQUESTS / queue.rate)
    in_flight, waiting = queue.sample(random, studies, step_s)
    called = np.full(studies, math.inf)
    for last in range(MIN_POINTS - 1, in_flight.shape[1]):
        window = slice(max(0, last + 1 - MAX_POINTS), last + 1)
        over = rises(in_flight[:, window], step_s, scale=queue.rate)[0] & rises(waiting[:, window], step_s)[0]
        called[over & np.isinf(called)] = last * step_s
    return called


def _bootstrap_percentile(blocks: np.ndarray, percentile: float, random: np.random.Generator) -> Interval:
    """The rival: percentile bootstrap of whole blocks, 500 resamples."""
    count, size = blocks.shape
    order = np.argsort(blocks, axis=None)[::-1]
    need = blocks.size - math.ceil(blocks.size * percentile / 100) + 1
    top = order[: need * 8]  # A block drawn more than eight times in place of all others does not happen.
    copies = random.multinomial(count, np.full(count, 1 / count), size=500)[:, top // size]
    at = (np.cumsum(copies, axis=1) < need).sum(axis=1)
    low, high = np.quantile(blocks.ravel()[top[np.minimum(at, len(top) - 1)]], [0.025, 0.975])
    return float(low), float(high)


def _covered(intervals: Sequence[Interval], truth: float) -> float:
    return _mean(low <= truth <= high for low, high in intervals)


def _coverage(what: str, noise: str, method: str, intervals: Sequence[Interval], truth: float) -> Line:
    low, high = COVERAGE
    return Line(what, noise, method, _covered(intervals, truth), at_least=low, at_most=high)


def _rival(what: str, noise: str, method: str, intervals: Sequence[Interval], truth: float) -> Line:
    return Line(what, noise, method, _covered(intervals, truth))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _table(title: str, lines: Sequence[Line]) -> Table:
    table = Table("figure", "noise", "method", title=title, title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("bound", justify="right")
    for line in lines:
        ends = [f"{sign} {end:g}" for sign, end in ((">=", line.at_least), ("<=", line.at_most)) if end is not None]
        missed = any(not bound.holds for bound in line.bounds())
        bound = ", ".join(ends) + (" MISSED" if missed else "")
        table.add_row(line.what, line.noise, line.method, f"{line.value:.4g}", bound or "-")
    return table


if __name__ == "__main__":
    sys.exit(main())
