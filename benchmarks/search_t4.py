"""Does the portfolio find a good row of a brute-forced GPU tuning table sooner than its rivals?

Three conditions, 30 seeds or more, on every table of a folder, with failures hidden until tried:

- ``clean``: the mean of the tables' median gaps after 80 evaluations is at most 8 %, and at least 0.55 of the seeds
  are within 5 %; on no table it is clearly worse than the best rival there; what TPE's median is after 100 evaluations
  it reaches within 50;
- ``noise``: 5 % on every value, independent; at least 0.35 of the seeds within 5 %;
- ``failing``: 30 % of the rows or a little more fail by a hidden rule on two knobs, another one for each seed; at least
  0.45 within 5 % of the best row that is left, and of the proposals 41 to 80 at most 8 % fail.

The gap is the true value of the row that was best as observed, over the best row's, less one. The best rival on a table
is that of the least median gap at 80 (mean, where several have it). Ours is clearly worse when the 95 % interval of the
probability that a search of ours ends with a larger gap than one of the rival's (a tie counts half) lies above one
half; the interval is a bootstrap over the seeds. Rivals without a list of points are given the untried row nearest to
what they suggest, which is kinder than scoring what does not exist.

The portfolio's design was chosen on made-up tables (``benchmarks._landscapes``; ``--made-up 4`` runs the same
comparison there). The two measured ones that are at hand had one part in it: the single arms were run on five seeds of
them, to see whether the made-up ones are of the same kind; knobs of sixteen levels and slow points that are far slower
still were added to those then.

Run as ``python -m benchmarks.search_t4`` from the repository's root. It takes about half an hour on one core. Searches
of the rivals come out the same in every run: with ``--keep FOLDER`` they are kept there, and done once.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import optuna
from rich.console import Console

from benchmarks._landscapes import KINDS, landscape
from benchmarks._report import report
from benchmarks._search_results import OURS, Results, bounds_of, figures_of, tables_of
from benchmarks._searchers import CONDITIONS, SEARCHERS, Key, Search, search
from benchmarks._t4 import TuningTable, read_tables

TABLES = Path("../shared/data/t4")
_DECIDE_RIVALS = (
    "benchmarks._searchers",
    "benchmarks._landscapes",
    "benchmarks._t4",
    "orchestrator.search.portfolio.acquisition",
    "orchestrator.search.portfolio.failures",
    "orchestrator.search.portfolio.features",
    "orchestrator.search.portfolio.forest",
)
"""Modules that a rival's searches depend on."""


class Kept:
    """Searches of rivals, kept in a folder; ours, whose code is what is being judged, never are.

    There is a file for each table. Its name holds a digest of the table and of the code that the searches depend on:
    after a change of either they are done anew.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._searches: dict[Path, dict[Key, Search]] = {}

    def search(self, table: TuningTable, condition: str, method: str, seed: int) -> Search:
        """One that is kept, or else a new one."""
        if self._folder is None or method == OURS:
            return search(table, condition, method, seed)
        file = self._folder / f"{table.name}-{_digest(table)}.jsonl"
        if file not in self._searches:
            self._searches[file] = {one.key: one for one in _read(file)}
        found = self._searches[file].get((table.name, condition, method, seed))
        if found is None:
            found = search(table, condition, method, seed)
            with file.open("a") as kept:
                kept.write(json.dumps(asdict(found)) + "\n")
        return found


def _read(file: Path) -> list[Search]:
    """The searches of a file; a last line that was cut off is removed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole)
    return [Search(**json.loads(line)) for line in whole.splitlines()]


def _digest(table: TuningTable) -> str:
    found = hashlib.sha256(optuna.__version__.encode())
    for name in _DECIDE_RIVALS:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found.update(Path(spec.origin).read_bytes())
    found.update(json.dumps(table.points).encode())
    found.update(table.times.tobytes())
    return found.hexdigest()[:12]


def _tables(args: argparse.Namespace) -> list[TuningTable]:
    if not args.made_up:
        return read_tables(args.folder)
    made = [(kind, number, landscape(kind, number)) for kind in KINDS for number in range(args.made_up)]
    return [TuningTable(f"{kind}_{number}", points, times) for kind, number, (points, times) in made]


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m benchmarks.search_t4``."""
    parser = argparse.ArgumentParser(description="The portfolio against its rivals on GPU tuning tables.")
    parser.add_argument("--folder", type=Path, default=TABLES, help="folder of T4 tables (default: %(default)s)")
    parser.add_argument("--made-up", type=int, metavar="N", help="N made-up tables of each kind instead")
    parser.add_argument("--seeds", type=_seeds, default="0-29", help="first and last seed (default: %(default)s)")
    parser.add_argument("--gp-seeds", type=int, default=10, help="Optuna's GP, the slowest, gets so many (%(default)s)")
    parser.add_argument("--methods", default=",".join(SEARCHERS), help="default: all of %(default)s")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="default: %(default)s")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keeps the rivals' searches between runs")
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    methods, conditions = args.methods.split(","), args.conditions.split(",")
    for given, known in ((methods, list(SEARCHERS)), (conditions, list(CONDITIONS))):
        for name in given:
            if name not in known:
                parser.error(f"{name} is none of {', '.join(known)}")
    tables, kept = _tables(args), Kept(args.keep)
    searches = [
        kept.search(table, condition, method, seed)
        for condition in conditions
        for method in methods
        for seed in (args.seeds[: args.gp_seeds] if method == "gp" else args.seeds)
        for table in tables
    ]
    results = Results(searches, [table.name for table in tables], methods)
    return report("search_t4", tables_of(results), figures_of(results), list(bounds_of(results)), Console(width=150))


if __name__ == "__main__":
    sys.exit(main())
