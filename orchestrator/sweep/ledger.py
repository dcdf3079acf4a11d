"""What a study has on disk, and what follows from it: the best ratio, the noise, the finalists."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc

from orchestrator.analysis.finalists import choose_finalists
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import PairedMeasurement
from orchestrator.measurement.stats import PooledNoise, RatioInterval, paired_ratio
from orchestrator.records import FULL_FIDELITY, RunFolder, SoakRecord, read_arrow, write_parts
from orchestrator.search import Point, serve_command
from orchestrator.sweep.rows import Outcome, Phase, PlacedBlock, Row, TrialResult, block_rows, request_rows, trial_row
from orchestrator.sweep.spec import SweepSpec

Kind = Literal["trial", "confirm", "accuracy", "unconfirmed", "soak"]
Values = tuple[Sequence[float], Sequence[float]]
"""One objective of the candidate's blocks and of the baseline's, by pair."""

_COLUMNS = (
    *("trial", "outcome", "point", "ratio", "ratio_low", "ratio_high", "pairs", "objectives"),
    *("failure", "failure_detail", "engine_log", "measuring_s", "starting_s", "reused_from"),
)
"""What ``_learn`` reads of a row of ``trials``."""


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

    One thread records trials; confirmations may come from several. What a trial adds is learned in a time that does not
    grow with their number.

    Attributes:
        trials: Every recorded trial by its number, those of an earlier process too. So are the others:
        noise: Spread of the first objective's pairs in the complete trials; whoever takes it keeps it as it was.
        best: The complete trial with the best ratio; None before there is one.
    """

    def __init__(self, spec: SweepSpec, run: RunFolder) -> None:
        self._spec, self._run = spec, run
        self._base = spec.engine_config()
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self.trials: dict[int, TrialRecord] = {}
        self._metrics = [one.metric for one in spec.all_objectives]
        self._noises = [PooledNoise() for _ in self._metrics]
        self.best: TrialRecord | None = None
        values = self._recorded_values()
        rows = read_arrow(run.path, "trials", where=FULL_FIDELITY, columns=_COLUMNS)
        for row in rows.sort_by("trial").to_pylist():
            self._learn(row, values.get(row["trial"], []))

    @property
    def noise(self) -> PooledNoise:
        return copy(self._noises[0])

    def write_trials(self, ended: Sequence[tuple[TrialResult, Sequence[PlacedBlock]]]) -> None:
        """Record trials with their blocks, their rows last: what has a row has all its blocks. Many at a time cost
        little more than one."""
        blocks = {
            result.number: placed
            for result, placed in ended
            # The second case: a process died between the blocks and the row, and now the trial failed.
            if placed or self._run.has_part("blocks", _name("trial", result.number))
        }
        if blocks:
            self._write_blocks("trial", "search", blocks)
        found = {_name("trial", result.number): self._row(result) for result, _ in ended}
        write_parts(self._run.path, "trials", {name: [row] for name, (row, _) in found.items()})
        for row, values in found.values():
            self._learn(row, values)

    def _row(self, result: TrialResult) -> tuple[Row, Sequence[Values]]:
        values = self._values(result.measurement) if result.measurement else []
        serve = serve_command(self._base, result.point)
        return trial_row(self._spec, result, serve, self._intervals(result.measurement, values)), values

    def write_confirmation(self, number: int, placed: Sequence[PlacedBlock], greedy: Sequence[PlacedBlock]) -> None:
        """Record a confirmation, the accuracy phase first: what ``is_confirmed`` has everything."""
        self._write_blocks("accuracy", "accuracy", {number: greedy})
        self._write_blocks("confirm", "confirm", {number: placed})

    def write_failed_confirmation(self, number: int, placed: Sequence[PlacedBlock]) -> None:
        """Record what was measured of a confirmation that failed. It counts for nothing, and is made again when the
        study is resumed."""
        if placed:
            self._write_blocks("unconfirmed", "confirm", {number: placed})

    def write_soak(self, number: int, placed: Sequence[PlacedBlock], record: SoakRecord) -> None:
        """Record a soak, its result last. A later soak of the trial takes its place."""
        self._write_blocks("soak", "soak", {number: placed})
        record.write(self._run.path)

    def is_confirmed(self, number: int) -> bool:
        """Whether a trial's confirmation is recorded."""
        return all(self._run.has_part(table, _name("confirm", number)) for table in ("requests", "blocks"))

    def finalists(self) -> list[int]:
        """Numbers of the trials to confirm, no point twice, the baseline itself left out."""
        seen: set[str] = set()
        ratios: dict[int, Sequence[float]] = {}
        for number, trial in self._best_first():
            key = json.dumps(dict(trial.point), sort_keys=True)
            if trial.point != self._spec.baseline_at(trial.point) and key not in seen:
                seen.add(key)
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

    def _recorded_values(self) -> Mapping[int, Sequence[Values]]:
        counted = (pc.field("phase") == "search") & ~pc.field("dropped") & FULL_FIDELITY
        columns = ["trial", "role", *self._metrics]
        found = read_arrow(self._run.path, "blocks", where=counted, columns=["pair", *columns]).sort_by("pair")
        values: dict[int, list[tuple[list[float], list[float]]]] = {}
        for trial, role, *metrics in zip(*(found[name].to_pylist() for name in columns), strict=True):
            of_trial = values.setdefault(trial, [([], []) for _ in self._metrics])
            for of_metric, value in zip(of_trial, metrics, strict=True):
                of_metric[0 if role == "candidate" else 1].append(value)
        return values

    def _write_blocks(self, kind: Kind, phase: Phase, placed: Mapping[int, Sequence[PlacedBlock]]) -> None:
        """Record blocks of trials, by their numbers."""
        folder = self._run.path
        requests, blocks = (
            {_name(kind, number): rows_of(self._spec, number, phase, some) for number, some in placed.items()}
            for rows_of in (request_rows, block_rows)
        )
        # Each waits for the disk, and neither for the other: a trial's row comes after both.
        written = self._disk.submit(write_parts, folder, "requests", requests)
        try:
            write_parts(folder, "blocks", blocks)
        finally:
            # Also when the other failed: nothing is written behind the back of who mends the disk.
            written.result()


def _name(kind: Kind, number: int) -> str:
    return f"{kind}-{number:05d}"


def _variance(noise: PooledNoise) -> float:
    return noise.sd**2 if noise.dof else 0.0
