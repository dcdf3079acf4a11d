"""How a benchmark ends: a table for people, then one line of JSON for programs."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

_COMPARE: dict[str, Callable[[float, float], bool]] = {"at most": operator.le, "at least": operator.ge}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A figure that a benchmark has to reach."""

    name: str
    value: float
    bound: float
    sense: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        return _COMPARE[self.sense](self.value, self.bound)


def report(
    benchmark: str, tables: Sequence[Table], figures: Mapping[str, Any], bounds: Sequence[Bound], console: Console
) -> int:
    """Print tables, bounds and the JSON line; return the exit code: 0 when every bound holds, else 1."""
    for table in tables:
        console.print(table)
    for bound in bounds:
        verdict = "holds" if bound.holds else "MISSED"
        console.print(f"{bound.name}: {bound.value:.4g}, {bound.sense} {bound.bound:g}: {verdict}")
    print(json_line(benchmark, figures, bounds), flush=True)
    return 0 if all(bound.holds for bound in bounds) else 1


def json_line(benchmark: str, figures: Mapping[str, Any], bounds: Sequence[Bound]) -> str:
    """The last line: ``benchmark``, ``figures`` and ``bounds``, each with ``holds``."""
    rows = [{"name": b.name, "value": b.value, "bound": b.bound, "sense": b.sense, "holds": b.holds} for b in bounds]
    return json.dumps({"benchmark": benchmark, "figures": dict(figures), "bounds": rows})
