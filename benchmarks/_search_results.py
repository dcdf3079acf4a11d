"""What searches of tuning tables found, what that adds up to, and the bounds on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import rankdata

from benchmarks._report import Bound
from benchmarks._searchers import CONDITIONS, EVALUATIONS, Search

SHOWN = (25, 40, 60, 80, 100)
WITHIN = 0.05
OURS, TPE = "portfolio", "tpe"
_RESAMPLES = 2000
Floats = NDArray[np.float64]


class Results:
    """Searches by table, condition and method; a method counts in a condition when it searched every table."""

    def __init__(self, searches: Sequence[Search], tables: Sequence[str], methods: Sequence[str]) -> None:
        self._cells: dict[tuple[str, str, str], list[Search]] = {}
        for one in sorted(searches, key=lambda one: one.seed):
            self._cells.setdefault((one.condition, one.method, one.table), []).append(one)
        self.tables, self._methods = list(tables), list(methods)

    def of(self, condition: str, method: str, table: str) -> list[Search]:
        """Those of one cell, by seed."""
        return self._cells.get((condition, method, table), [])

    def methods(self, condition: str) -> list[str]:
        """Methods that searched every table."""
        return [name for name in self._methods if all(self.of(condition, name, table) for table in self.tables)]

    def rivals(self, condition: str) -> list[str]:
        """Those of them that are not ours."""
        return [name for name in self.methods(condition) if name != OURS]

    def seeds(self, condition: str, method: str) -> int:
        """Number of searches of the table that has the fewest."""
        return min(len(self.of(condition, method, table)) for table in self.tables)

    def gaps(self, condition: str, method: str, table: str) -> Floats:
        """Shape (seeds, evaluations); infinite before anything gave a value."""
        rows = [[np.inf if gap is None else gap for gap in one.gaps] for one in self.of(condition, method, table)]
        return np.array(rows, dtype=float).reshape(-1, EVALUATIONS)

    def at(self, condition: str, method: str, evaluation: int) -> list[Floats]:
        """The gaps after so many evaluations, table by table."""
        return [self.gaps(condition, method, table)[:, evaluation - 1] for table in self.tables]

    def failing(self, condition: str, method: str) -> float:
        """Share of the proposals 41 to 80 that fail."""
        found = [one.failed[40:80] for table in self.tables for one in self.of(condition, method, table)]
        return float(np.mean([part.count("1") / 40 for part in found]))


def median_gap(tables: Sequence[Floats]) -> float:
    """Mean over the tables of the median gap."""
    return float(np.mean([np.median(gaps) for gaps in tables]))


def within(tables: Sequence[Floats]) -> float:
    """Mean over the tables of the share of seeds within 5 %."""
    return float(np.mean([np.mean(gaps <= WITHIN) for gaps in tables]))


def interval(figure: Callable[[Sequence[Floats]], float], tables: Sequence[Floats]) -> tuple[float, float]:
    """95 % interval of a figure over the seeds, by the percentile bootstrap; the tables are taken as they are."""
    rng = np.random.default_rng(0)
    drawn = [figure([rng.choice(gaps, len(gaps)) for gaps in tables]) for _ in range(_RESAMPLES)]
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def worse(ours: Floats, rival: Floats) -> float:
    """Probability that a search of ours ends worse than one of the rival's; a tie counts half."""
    ranks = rankdata(np.concatenate([ours, rival]))[: len(ours)]
    return float((ranks.sum() - len(ours) * (len(ours) + 1) / 2) / (len(ours) * len(rival)))


def best_rival(results: Results, condition: str, table: str, evaluation: int) -> str:
    """The rival of the least median gap on a table; of the least mean where several have it."""

    def rank(method: str) -> tuple[float, float]:
        gaps = results.gaps(condition, method, table)[:, evaluation - 1]
        return float(np.median(gaps)), float(np.mean(gaps))

    return min(results.rivals(condition), key=rank)


def until(gaps: Floats, goal: float) -> float:
    """Evaluations until the median gap is at most a goal; one more than there were when it never is."""
    reached = np.flatnonzero(np.median(gaps, axis=0) <= goal)
    return float(reached[0] + 1) if len(reached) else float(EVALUATIONS + 1)


def bounds_of(results: Results) -> Iterator[Bound]:
    """The bounds of the conditions that the results hold."""
    if OURS in results.methods("clean"):
        gap = median_gap(results.at("clean", OURS, 80))
        yield Bound(name="clean: mean of median gaps at 80", value=gap, bound=0.08)
        yield _within_bound(results, "clean", 0.55)
        for table in results.tables if results.rivals("clean") else ():
            rival = best_rival(results, "clean", table, 80)
            low, _ = worse_interval(results, table, rival)
            yield Bound(name=f"{table}: P(worse than {rival} at 80), lower limit", value=low, bound=0.5)
        for table in results.tables if TPE in results.rivals("clean") else ():
            goal = float(np.median(results.gaps("clean", TPE, table)[:, 99]))
            needed = until(results.gaps("clean", OURS, table), goal)
            yield Bound(name=f"{table}: evaluations to TPE's median at 100", value=needed, bound=50)
    if OURS in results.methods("noise"):
        yield _within_bound(results, "noise", 0.35)
    if OURS in results.methods("failing"):
        yield _within_bound(results, "failing", 0.45)
        yield Bound(name="failing: proposals 41 to 80 that fail", value=results.failing("failing", OURS), bound=0.08)


def worse_interval(results: Results, table: str, rival: str) -> tuple[float, float]:
    """95 % interval of ``worse`` against a rival at 80 evaluations, of clean searches of one table."""
    pair = [results.gaps("clean", method, table)[:, 79] for method in (OURS, rival)]
    return interval(lambda gaps: worse(gaps[0], gaps[1]), pair)


def _within_bound(results: Results, condition: str, least: float) -> Bound:
    share = within(results.at(condition, OURS, 80))
    return Bound(name=f"{condition}: share within 5 % at 80", value=share, bound=least, sense="at least")


def tables_of(results: Results) -> list[Table]:
    """Everything for people to read."""
    shown = [condition for condition in CONDITIONS if results.methods(condition)]
    tables = [table for condition in shown for table in (_summary(results, condition), _by_table(results, condition))]
    if OURS in results.methods("clean") and results.rivals("clean"):
        tables.append(_against(results))
    return tables


def figures_of(results: Results) -> dict[str, Any]:
    """Everything for programs to read: condition, method, figure."""
    return {
        condition: {method: _figures(results, condition, method) for method in results.methods(condition)}
        for condition in CONDITIONS
        if results.methods(condition)
    }


def _figures(results: Results, condition: str, method: str) -> dict[str, Any]:
    at_80 = results.at(condition, method, 80)
    return {
        "seeds": results.seeds(condition, method),
        "median_gap": [median_gap(results.at(condition, method, at)) for at in SHOWN],
        "median_gap_80_interval": interval(median_gap, at_80),
        "within": [within(results.at(condition, method, at)) for at in SHOWN],
        "within_80_interval": interval(within, at_80),
        "failing": results.failing(condition, method),
    }


def _summary(results: Results, condition: str) -> Table:
    """Methods by what they reach, averaged over the tables."""
    shown = "/".join(map(str, SHOWN))
    table = Table(title=f"{condition}: average of {len(results.tables)} tables at {shown} evaluations, 95 % at 80")
    for head in ("method", "seeds", "median gap %", "at 80", "share within 5 %", "at 80", "fails, 41 to 80"):
        table.add_column(head)
    for method in results.methods(condition):
        found = _figures(results, condition, method)
        (gap_low, gap_high), (low, high) = found["median_gap_80_interval"], found["within_80_interval"]
        table.add_row(
            method,
            str(found["seeds"]),
            "/".join(f"{100 * gap:.1f}" for gap in found["median_gap"]),
            f"{100 * gap_low:.1f} to {100 * gap_high:.1f}",
            "/".join(f"{share:.2f}" for share in found["within"]),
            f"{low:.2f} to {high:.2f}",
            f"{100 * found['failing']:.1f} %",
        )
    return table


def _by_table(results: Results, condition: str) -> Table:
    """Median gap and share within 5 % at 80 evaluations, of each table."""
    table = Table(title=f"{condition}: median gap % and share within 5 % at 80 evaluations")
    table.add_column("method")
    for name in results.tables:
        table.add_column(name)
    for method in results.methods(condition):
        pairs = [(float(np.median(gaps)), float(np.mean(gaps <= WITHIN))) for gaps in results.at(condition, method, 80)]
        table.add_row(method, *(f"{100 * gap:.1f}  {share:.2f}" for gap, share in pairs))
    return table


def _against(results: Results) -> Table:
    """Ours against each rival, table by table."""
    table = Table(title="clean: probability that ours is worse than the rival at 80 evaluations, 95 % interval")
    table.add_column("rival")
    for name in results.tables:
        table.add_column(name)
    for rival in results.rivals("clean"):
        cells = []
        for name in results.tables:
            pair = [results.gaps("clean", method, name)[:, 79] for method in (OURS, rival)]
            low, high = worse_interval(results, name, rival)
            cells.append(f"{worse(pair[0], pair[1]):.2f} ({low:.2f} to {high:.2f})")
        table.add_row(rival, *cells)
    return table
