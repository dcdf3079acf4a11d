"""What a study has on disk, and what follows from it: the best ratio, the noise, the finalists."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc

from orchestrator.errors import ChunksmithError
from orchestrator.measurement.stats import PooledNoise, RatioInterval
from orchestrator.records import RunFolder, SoakRecord, read_arrow, write_rows
from orchestrator.search import Point, serve_command
from orchestrator.sweep.rows import Outcome, Phase, PlacedBlock, TrialResult, block_rows, request_rows, trial_row
from orchestrator.sweep.spec import SweepSpec

Kind = Literal["trial", "confirm", "accuracy", "unconfirmed", "soak"]
Values = tuple[Sequence[float], Sequence[float]]
"""The objective of the candidate's blocks and of the baseline's, by pair."""


@dataclass(frozen=True)
class TrialRecord:
    """What later steps need of a recorded trial. ``interval`` is there exactly when it is complete."""

    outcome: Outcome
    point: Point
    interval: RatioInterval | None
    failure: str | None
    """One line with the engine's log; None if it is complete."""


class Ledger:
    """Writes the three tables of one study, under names that the trial's number fixes, and reads them back.

    Attributes:
        trials: Every recorded trial by its number, those of an earlier process too. So are the others:
        noise: Spread of the pairs of the complete trials.
        best: The complete trial with the best ratio; None before there is one.
    """

    def __init__(self, spec: SweepSpec, run: RunFolder) -> None:
        self._spec, self._run = spec, run
        self._base = spec.engine_config()
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self.trials: dict[int, TrialRecord] = {}
        self.noise = PooledNoise()
        self.best: TrialRecord | None = None
        values = self._recorded_values()
        for row in read_arrow(run.path, "trials").sort_by("trial").to_pylist():
            self._learn(row, values.get(row["trial"]))

    def write_trial(self, result: TrialResult, placed: Sequence[PlacedBlock]) -> None:
        """Record a trial, its row last: what has a row has all its blocks."""
        if placed or self._file("blocks", "trial", result.number).exists():
            # The second case: a process died between the blocks and the row, and now the trial failed.
            self._write_blocks("trial", result.number, "search", placed)
        row = trial_row(self._spec, result, serve_command(self._base, result.point))
        write_rows(self._run.path, "trials", _name("trial", result.number), [row])
        metric = self._spec.objective.metric
        found = result.measurement
        self._learn(row, (found.values("candidate", metric), found.values("baseline", metric)) if found else None)

    def write_confirmation(self, number: int, placed: Sequence[PlacedBlock], greedy: Sequence[PlacedBlock]) -> None:
        """Record a confirmation, the accuracy phase first: what ``is_confirmed`` has everything."""
        self._write_blocks("accuracy", number, "accuracy", greedy)
        self._write_blocks("confirm", number, "confirm", placed)

    def write_failed_confirmation(self, number: int, placed: Sequence[PlacedBlock]) -> None:
        """Record what was measured of a confirmation that failed. It counts for nothing, and is made again when the
        study is resumed."""
        if placed:
            self._write_blocks("unconfirmed", number, "confirm", placed)

    def write_soak(self, number: int, placed: Sequence[PlacedBlock], record: SoakRecord) -> None:
        """Record a soak, its result last. A later soak of the trial takes its place."""
        self._write_blocks("soak", number, "soak", placed)
        record.write(self._run.path)

    def is_confirmed(self, number: int) -> bool:
        """Whether a trial's confirmation is recorded."""
        return all(self._file(table, "confirm", number).exists() for table in ("requests", "blocks"))

    def finalists(self) -> list[int]:
        """Numbers of the best trials, best first, no point twice, the baseline itself left out."""
        sign = 1.0 if self._spec.objective.direction == "minimize" else -1.0
        ratios = [(sign * trial.interval.ratio, number) for number, trial in self.trials.items() if trial.interval]
        seen: list[Point] = [self._spec.baseline_point()]
        finalists: list[int] = []
        for _, number in sorted(ratios):
            if self.trials[number].point not in seen:
                seen.append(self.trials[number].point)
                finalists.append(number)
        return finalists[: self._spec.confirm.points]

    def require_result(self) -> None:
        """Raise ChunksmithError, with the last failure, when no trial is complete."""
        if self.best is None:
            outcomes = Counter(trial.outcome for trial in self.trials.values())
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            last = self.trials[max(self.trials)]
            raise ChunksmithError(f"no trial gave a result ({counts}); the last: {last.failure}")

    def _learn(self, row: Mapping[str, Any], values: Values | None) -> None:
        """Take in a recorded trial; ``values`` are there when it is complete."""
        interval = failure = None
        if values is not None and row["outcome"] == "complete":
            ends = (row["ratio"], row["ratio_low"], row["ratio_high"])
            interval = RatioInterval(*ends, pairs=row["pairs"], level=0.95, sd_log=math.nan, dof=0)
            self.noise.add([math.log(a) - math.log(b) for a, b in zip(*values, strict=True)])
        else:
            log = f" (engine log: {row['engine_log']})" if row["engine_log"] else ""
            failure = f"{row['failure']}: {row['failure_detail']}{log}"
        values_of = json.loads(row["point"])
        point = {name: values_of[name] for name in self._spec.space}
        trial = TrialRecord(row["outcome"], point, interval, failure)
        self.trials[row["trial"]] = trial
        if interval is not None and (self.best is None or self._is_better(interval, self.best)):
            self.best = trial

    def _is_better(self, interval: RatioInterval, best: TrialRecord) -> bool:
        assert best.interval is not None
        if self._spec.objective.direction == "minimize":
            return interval.ratio < best.interval.ratio
        return interval.ratio > best.interval.ratio

    def _recorded_values(self) -> dict[int, Values]:
        counted = (pc.field("phase") == "search") & ~pc.field("dropped")
        blocks = read_arrow(self._run.path, "blocks", where=counted).sort_by("pair")
        values: dict[int, tuple[list[float], list[float]]] = {}
        for row in blocks.to_pylist():
            candidate, baseline = values.setdefault(row["trial"], ([], []))
            (candidate if row["role"] == "candidate" else baseline).append(row[self._spec.objective.metric])
        return dict(values)

    def _write_blocks(self, kind: Kind, number: int, phase: Phase, placed: Sequence[PlacedBlock]) -> None:
        name, folder = _name(kind, number), self._run.path
        # Each waits for the disk, and neither for the other: a trial's row comes after both.
        requests = self._disk.submit(
            write_rows, folder, "requests", name, request_rows(self._spec, number, phase, placed)
        )
        try:
            write_rows(folder, "blocks", name, block_rows(self._spec, number, phase, placed))
        finally:
            # Also when the other failed: nothing is written behind the back of who mends the disk.
            requests.result()

    def _file(self, table: str, kind: Kind, number: int) -> Path:
        return self._run.table(table) / f"{_name(kind, number)}.parquet"


def _name(kind: Kind, number: int) -> str:
    return f"{kind}-{number:05d}"
