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

from orchestrator.analysis.finalists import choose_finalists
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import PairedMeasurement, Role
from orchestrator.measurement.stats import PooledNoise, RatioInterval, paired_ratio
from orchestrator.records import FULL_FIDELITY, RunFolder, SoakRecord, read_arrow, write_rows
from orchestrator.search import Point, serve_command
from orchestrator.sweep.rows import Outcome, Phase, PlacedBlock, TrialResult, block_rows, request_rows, trial_row
from orchestrator.sweep.spec import SweepSpec

Kind = Literal["trial", "confirm", "accuracy", "unconfirmed", "soak"]
Values = tuple[Sequence[float], Sequence[float]]
"""One objective of the candidate's blocks and of the baseline's, by pair."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What later steps need of a recorded trial.

    Attributes:
        interval: Of the first objective; there exactly when the trial is complete.
        ratios: Of every objective; empty likewise.
        log_variance: Largest variance of the logarithm of one of them; 0 while no trial's pairs tell it.
        label: Class of the failure; None if the trial is complete.
        failure: One line on it with the engine's log; None likewise.
        measuring_s: Seconds of its blocks.
        starting_s: Seconds of the engine starts in it.
        reused_from: Run and trial of an earlier study that measured it; None if this one did.
    """

    outcome: Outcome
    point: Point
    interval: RatioInterval | None
    ratios: Sequence[float]
    log_variance: float
    label: str | None
    failure: str | None
    measuring_s: float
    starting_s: float
    reused_from: str | None


class Ledger:
    """Writes the three tables of one study, under names that the trial's number fixes, and reads them back.

    Attributes:
        trials: Every recorded trial by its number, those of an earlier process too. So are the others:
        noise: Spread of the first objective's pairs in the complete trials.
        best: The complete trial with the best ratio; None before there is one.
    """

    def __init__(self, spec: SweepSpec, run: RunFolder) -> None:
        self._spec, self._run = spec, run
        self._base = spec.engine_config()
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self.trials: dict[int, TrialRecord] = {}
        self._metrics = [one.metric for one in spec.all_objectives]
        self._noises = [PooledNoise() for _ in self._metrics]
        self.noise = self._noises[0]
        self.best: TrialRecord | None = None
        values = self._recorded_values()
        for row in read_arrow(run.path, "trials", where=FULL_FIDELITY).sort_by("trial").to_pylist():
            self._learn(row, values.get(row["trial"], []))

    def write_trial(self, result: TrialResult, placed: Sequence[PlacedBlock]) -> None:
        """Record a trial, its row last: what has a row has all its blocks."""
        if placed or self._file("blocks", "trial", result.number).exists():
            # The second case: a process died between the blocks and the row, and now the trial failed.
            self._write_blocks("trial", result.number, "search", placed)
        values = self._values(result.measurement) if result.measurement else []
        serve = serve_command(self._base, result.point)
        row = trial_row(self._spec, result, serve, self._intervals(result.measurement, values))
        write_rows(self._run.path, "trials", _name("trial", result.number), [row])
        self._learn(row, values)

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
        """Numbers of the trials to confirm, no point twice, the baseline itself left out."""
        seen: list[Point] = []
        ratios: dict[int, Sequence[float]] = {}
        for number, trial in self._best_first():
            if trial.point not in [self._spec.baseline_at(trial.point), *seen]:
                seen.append(trial.point)
                ratios[number] = trial.ratios
        directions = [one.direction for one in self._spec.all_objectives]
        return choose_finalists(ratios, directions, self._spec.confirm.points)

    def _best_first(self) -> list[tuple[int, TrialRecord]]:
        complete = [(number, trial) for number, trial in self.trials.items() if trial.ratios]
        sign = 1.0 if self._spec.objective.direction == "minimize" else -1.0
        return sorted(complete, key=lambda one: (sign * one[1].ratios[0], one[0]))

    def require_result(self) -> None:
        """Raise ChunksmithError, with the last failure, when no trial is complete."""
        if self.best is None:
            outcomes = Counter(trial.outcome for trial in self.trials.values())
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            last = self.trials[max(self.trials)]
            raise ChunksmithError(f"no trial gave a result ({counts}); the last: {last.failure}")

    def _values(self, measurement: PairedMeasurement) -> list[Values]:
        return [(measurement.values("candidate", one), measurement.values("baseline", one)) for one in self._metrics]

    def _intervals(self, measurement: PairedMeasurement | None, values: Sequence[Values]) -> list[RatioInterval]:
        """Of each objective; that of the first is what the measurement went by."""
        if measurement is None:
            return []
        others = zip(values[1:], self._noises[1:], strict=True)
        return [measurement.interval, *(paired_ratio(*one, pooled=noise) for one, noise in others)]

    def _learn(self, row: Mapping[str, Any], values: Sequence[Values]) -> None:
        """Take in a recorded trial; ``values`` of each objective are there when its pairs are."""
        interval = failure = None
        ratios: list[float] = []
        if row["outcome"] == "complete":
            ends = (row["ratio"], row["ratio_low"], row["ratio_high"])
            interval = RatioInterval(*ends, pairs=row["pairs"], level=0.95, sd_log=math.nan, dof=0)
            ratios = [one["ratio"] for one in row["objectives"] or [row]]
            for noise, one in zip(self._noises, values, strict=False):
                noise.add([math.log(a) - math.log(b) for a, b in zip(*one, strict=True)])
        else:
            log = f" (engine log: {row['engine_log']})" if row["engine_log"] else ""
            failure = f"{row['failure']}: {row['failure_detail']}{log}"
        values_of = json.loads(row["point"])
        trial = TrialRecord(
            outcome=row["outcome"],
            point={name: values_of[name] for name in self._spec.space},
            interval=interval,
            ratios=ratios,
            log_variance=max(_variance(noise) for noise in self._noises) / max(row["pairs"], 1),
            label=row["failure"],
            failure=failure,
            measuring_s=row["measuring_s"],
            starting_s=row["starting_s"] or 0.0,
            reused_from=row["reused_from"],
        )
        self.trials[row["trial"]] = trial
        if interval is not None and (self.best is None or self._is_better(interval, self.best)):
            self.best = trial

    def _is_better(self, interval: RatioInterval, best: TrialRecord) -> bool:
        assert best.interval is not None
        if self._spec.objective.direction == "minimize":
            return interval.ratio < best.interval.ratio
        return interval.ratio > best.interval.ratio

    def _recorded_values(self) -> dict[int, list[Values]]:
        counted = (pc.field("phase") == "search") & ~pc.field("dropped") & FULL_FIDELITY
        rows: dict[int, list[dict[str, Any]]] = {}
        for row in read_arrow(self._run.path, "blocks", where=counted).sort_by("pair").to_pylist():
            rows.setdefault(row["trial"], []).append(row)

        def of(trial: int, role: Role, metric: str) -> list[float]:
            return [row[metric] for row in rows[trial] if row["role"] == role]

        return {
            trial: [(of(trial, "candidate", one), of(trial, "baseline", one)) for one in self._metrics]
            for trial in rows
        }

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


def _variance(noise: PooledNoise) -> float:
    return noise.sd**2 if noise.dof else 0.0
