"""What a ladder measured below the rung ``full``: in the tables of the run, under names that a number fixes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.records import FULL_FIDELITY, RunFolder, read_arrow, write_rows
from orchestrator.search import Point, serve_command
from orchestrator.search.fidelity import Fidelity
from orchestrator.sweep.rows import PlacedBlock, Row, TrialResult, block_rows, request_rows, trial_row
from orchestrator.sweep.spec import SweepSpec

PLANNED: Final = "planning"


@dataclass(frozen=True, kw_only=True)
class RungRecord:
    """What the ladder needs of a recorded measurement.

    Attributes:
        ratio: To the baseline on the same rung; None where there is none.
        log_ratios: Of its pairs, where there are pairs.
        failure: One line on why there is no ratio.
        measuring_s: Seconds of its blocks.
    """

    fidelity: str
    point: Point
    ratio: float | None
    log_ratios: Sequence[float] = ()
    failure: str | None = None
    measuring_s: float = 0.0


class RungRecords:
    """Writes and reads the rows of the lower rungs.

    Attributes:
        known: What is recorded, by number. Numbers begin where those of the study's own trials end.
    """

    def __init__(self, spec: SweepSpec, run: RunFolder) -> None:
        self._spec, self._run = spec, run
        self._base = spec.engine_config()
        pairs = self._recorded_pairs()
        self.known: dict[int, RungRecord] = {}
        for row in read_arrow(run.path, "trials", where=~FULL_FIDELITY).sort_by("trial").to_pylist():
            self.known[row["trial"]] = self._record(row, pairs.get(row["trial"], ()))

    def planned(self) -> list[RungRecord]:
        """Records of the rung ``planning``, in the order of their numbers."""
        return [record for _, record in sorted(self.known.items()) if record.fidelity == PLANNED]

    def write(self, fidelity: Fidelity, result: TrialResult, placed: Sequence[PlacedBlock]) -> RungRecord:
        """Record a measurement, its row in ``trials`` last: what has a row has all its blocks."""
        name, folder, number = f"{fidelity}-{result.number:05d}", self._run.path, result.number
        if placed or self._run.has_part("blocks", name):
            # The second case: a process died between the blocks and the row, and now there are none.
            write_rows(folder, "requests", name, request_rows(self._spec, number, "search", placed))
            blocks = block_rows(self._spec, number, "search", placed)
            write_rows(folder, "blocks", name, [block | {"fidelity": fidelity} for block in blocks])
        found = result.measurement
        intervals = [found.interval] if found else []
        row = trial_row(self._spec, result, serve_command(self._base, result.point), intervals)
        row["fidelity"] = fidelity
        write_rows(folder, "trials", name, [row])
        metric = self._spec.objective.metric
        logs = _log_ratios(found.values("candidate", metric), found.values("baseline", metric)) if found else ()
        self.known[number] = self._record(row, logs)
        return self.known[number]

    def write_planned(self, results: Sequence[tuple[TrialResult, Mapping[str, Any]]]) -> None:
        """Record the whole rung ``planning`` at once.

        Args:
            results: Each with the columns in which the prediction stands.
        """
        rows: list[Row] = []
        for result, columns in results:
            row = trial_row(self._spec, result, serve_command(self._base, result.point), [])
            rows.append({**row, **columns, "fidelity": PLANNED})
        write_rows(self._run.path, "trials", f"{PLANNED}-{results[0][0].number:05d}", rows)
        for row, (result, _) in zip(rows, results, strict=True):
            self.known[result.number] = self._record(row, ())

    def _record(self, row: Mapping[str, Any], log_ratios: Sequence[float]) -> RungRecord:
        values = json.loads(row["point"])
        return RungRecord(
            fidelity=row["fidelity"],
            point={name: values[name] for name in self._spec.space},
            ratio=row["ratio"] if row["outcome"] == "complete" else None,
            log_ratios=log_ratios,
            failure=None if row["outcome"] == "complete" else f"{row['failure']}: {row['failure_detail']}",
            measuring_s=row["measuring_s"],
        )

    def _recorded_pairs(self) -> dict[int, list[float]]:
        """Log ratios of the pairs of each number."""
        metric = self._spec.objective.metric
        values: dict[int, dict[str, list[float]]] = {}
        counted = ~FULL_FIDELITY & ~pc.field("dropped")
        for row in read_arrow(self._run.path, "blocks", where=counted).sort_by("pair").to_pylist():
            values.setdefault(row["trial"], {"candidate": [], "baseline": []})[row["role"]].append(row[metric])
        # A process that died between the blocks and the row may have left a pair without its other half.
        whole = {number: one for number, one in values.items() if len(one["candidate"]) == len(one["baseline"])}
        return {number: _log_ratios(one["candidate"], one["baseline"]) for number, one in whole.items()}


def _log_ratios(candidate: Sequence[float], baseline: Sequence[float]) -> list[float]:
    return [math.log(a) - math.log(b) for a, b in zip(candidate, baseline, strict=True)]
