"""The sweep: ask, measure, record, tell; then confirm the best with fresh prompts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from orchestrator.engines import EngineError
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.stats import PooledNoise, RatioInterval
from orchestrator.records import RunFolder, collect, read_trials, write_rows, write_text_atomic
from orchestrator.search import Point, group_schedule, serve_command, violated
from orchestrator.sweep.knob_check import LABEL as KNOB_NOT_IN_FORCE
from orchestrator.sweep.measure import Bench, TrialFailure
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.progress import Progress, describe, describe_interval
from orchestrator.sweep.rows import PlacedBlock, TrialResult, block_rows, request_rows, trial_row
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.study import TrialBook, open_study

MAX_ATTEMPTS = 3
"""How often a trial is begun whose engine is lost under it."""


class Sweep:
    """One study, from its first or its next trial to the confirmed finalists. The caller holds the run's lock.

    What is measured is on disk before it is told to Optuna, under names that the trial's number fixes: a trial that
    is measured again after a crash takes its own place.
    """

    def __init__(self, spec: SweepSpec, run: RunFolder, make_engine: MakeEngine, progress: Progress) -> None:
        self._spec, self._run, self._progress = spec, run, progress
        self._space = spec.search_space()
        self._base = spec.engine_config()
        names = self._space.names("engine")
        first = {name: spec.baseline_point()[name] for name in names}
        self._schedule = group_schedule(self._space, trials=spec.trials, seed=spec.seed, first=first)
        self._pool = EnginePool(make_engine, self._base, first)
        self._bench = Bench(spec, self._pool, self._engine_started)
        self._noise = PooledNoise()
        self._best: tuple[float, Point] | None = None
        self._provenance: dict[str, Any] = {}

    def run(self) -> None:
        """Do what is left of the study. Whatever ends it, no engine is left and nothing measured is lost.

        Raises:
            ChunksmithError: No trial gave a result, or the knobs of the space had no effect.
        """
        self._begin_provenance()
        study = open_study(
            self._run.journal,
            name=self._spec.study,
            space=self._space,
            group_of=lambda number: self._schedule[number],
            direction=self._spec.objective.direction,
            seed=self._spec.seed,
        )
        book = TrialBook(study, self._space, self._spec.trials)
        try:
            self._recall()
            while (asked := book.next()) is not None:
                self._trial(book, *asked)
            self._require_result()
            self._confirm()
        except BaseException:
            self._pool.discard_all()
            raise
        self._progress.engine_state("stopping")
        self._pool.stop_all()

    def _trial(self, book: TrialBook, number: int, point: Point) -> None:
        label = f"trial {number + 1} of {self._spec.trials}"
        earlier = self._recorded(number)
        if earlier is not None:
            # Recorded by a process that died before it could tell.
            self._tell(book, number, earlier["outcome"], earlier["ratio"])
            return
        self._progress.begin(label, point)
        result = self._measure_trial(number, point)
        row = trial_row(self._spec, result, serve_command(self._base, point))
        write_rows(self._run.path, "trials", _name("trial", number), [row])
        self._tell(book, number, result.outcome, row["ratio"])
        self._progress.end(label, point, _verdict(result))
        if result.measurement is not None:
            self._learn(point, result.measurement.interval, _logs(result, self._spec))
        elif result.failure == KNOB_NOT_IN_FORCE and len(self._space.groups()) == 1 and self._best is None:
            raise ChunksmithError(f"failed: {result.failure}: {result.detail} Engine log: {result.log_path}")

    def _measure_trial(self, number: int, point: Point) -> TrialResult:
        started_at, group = datetime.now(UTC), self._bench.group_of(point)

        def ended(outcome: Any, attempt: int, **more: Any) -> TrialResult:
            return TrialResult(
                number=number,
                point=point,
                group=group,
                outcome=outcome,
                attempt=attempt,
                started_at=started_at,
                **more,
            )

        args = self._base.args
        rule = violated(
            point,
            max_num_batched_tokens=args.get("max_num_batched_tokens"),
            max_num_seqs=args.get("max_num_seqs"),
        )
        if rule is not None:
            return ended("infeasible", 0, failure="constraint", detail=rule)
        for attempt in range(MAX_ATTEMPTS):
            try:
                measurement, placed = self._bench.compare(
                    number,
                    "search",
                    point,
                    self._spec.pair_plan(),
                    noise=self._noise,
                    best_ratio=self._best[0] if self._best else None,
                )
            except EngineError as error:
                self._pool.discard_all()
                if not error.lost:
                    return ended("failed", attempt, failure=error.label, detail=error.detail, log_path=error.log_path)
                self._progress.say(f"lost: {error}; attempt {attempt + 1} of {MAX_ATTEMPTS}")
                lost = error
            except TrialFailure as failure:
                return ended("failed", attempt, failure=failure.label, detail=failure.detail, log_path=failure.log_path)
            else:
                self._write_blocks("trial", number, "search", placed)
                info = [block.info for block in placed if block.block.role == "candidate"][-1]
                return ended("complete", attempt, measurement=measurement, info=info)
        return ended("lost", MAX_ATTEMPTS - 1, failure=lost.label, detail=lost.detail, log_path=lost.log_path)

    def _confirm(self) -> None:
        """Measure the best points again, on prompts that the search has not seen, and compare their greedy tokens."""
        self._progress.phase = "confirm"
        for rank, (number, point) in enumerate(self._finalists()):
            label = f"confirming {rank + 1} of {self._spec.confirm.points}"
            if self._is_confirmed(number):
                continue
            self._progress.begin(label, point)
            try:
                interval = self._confirm_one(number, point)
            except TrialFailure as failure:
                self._progress.end(label, point, f"failed: {failure}")
            else:
                self._progress.end(label, point, describe_interval(interval))

    def _confirm_one(self, number: int, point: Point) -> RatioInterval:
        for attempt in range(MAX_ATTEMPTS):
            try:
                measurement, placed = self._bench.compare(number, "confirm", point, self._spec.confirm_plan())
                greedy = self._bench.greedy(point)
            except EngineError as error:
                self._pool.discard_all()
                if not error.lost or attempt + 1 == MAX_ATTEMPTS:
                    raise TrialFailure(error.label, error.detail, error.log_path) from error
                self._progress.say(f"lost: {error}; attempt {attempt + 1} of {MAX_ATTEMPTS}")
            else:
                self._write_blocks("accuracy", number, "accuracy", greedy)
                self._write_blocks("confirm", number, "confirm", placed)
                return measurement.interval
        raise AssertionError("the last attempt returns or raises")

    def _write_blocks(self, kind: str, number: int, phase: Any, placed: Sequence[PlacedBlock]) -> None:
        requests = request_rows(self._spec, number, phase, placed)
        write_rows(self._run.path, "requests", _name(kind, number), requests)
        write_rows(self._run.path, "blocks", _name(kind, number), block_rows(self._spec, number, phase, placed))

    def _finalists(self) -> list[tuple[int, Point]]:
        """Numbers and points of the best trials, best first, no point twice, the baseline itself left out."""
        trials = read_trials(self._run.path)
        trials = trials[trials["outcome"] == "complete"]
        ordered = trials.sort_values(["ratio", "trial"], ascending=[self._spec.objective.direction == "minimize", True])
        seen = {describe(self._spec.baseline_point())}
        finalists: list[tuple[int, Point]] = []
        for number, text in zip(ordered["trial"], ordered["point"], strict=True):
            point = json.loads(text)
            if describe(point) not in seen and len(finalists) < self._spec.confirm.points:
                seen.add(describe(point))
                finalists.append((int(number), point))
        return finalists

    def _is_confirmed(self, number: int) -> bool:
        return (self._run.table("blocks") / f"{_name('confirm', number)}.parquet").exists()

    def _recorded(self, number: int) -> dict[str, Any] | None:
        if not (self._run.table("trials") / f"{_name('trial', number)}.parquet").exists():
            return None
        trials = read_trials(self._run.path)
        return {str(key): value for key, value in trials[trials["trial"] == number].iloc[0].to_dict().items()}

    def _tell(self, book: TrialBook, number: int, outcome: str, ratio: Any) -> None:
        if outcome == "complete":
            book.tell_ratio(number, float(ratio))
        else:
            book.tell_without_value(number, infeasible=outcome == "infeasible")

    def _learn(self, point: Point, interval: RatioInterval, logs: Sequence[float]) -> None:
        self._noise.add(logs)
        better = self._spec.objective.direction == "minimize"
        if self._best is None or (interval.ratio < self._best[0]) == better:
            self._best = (interval.ratio, point)
            self._progress.best_so_far(point, interval)

    def _recall(self) -> None:
        """What an earlier process found: the best ratio and the number of trials that are done."""
        trials = read_trials(self._run.path)
        self._progress.done = len(trials)
        complete = trials[trials["outcome"] == "complete"]
        for _, row in complete.iterrows():
            interval = RatioInterval(row["ratio"], row["ratio_low"], row["ratio_high"], row["pairs"], 0.95, math.nan, 0)
            better = self._spec.objective.direction == "minimize"
            if self._best is None or (interval.ratio < self._best[0]) == better:
                self._best = (interval.ratio, json.loads(row["point"]))
                self._progress.best_so_far(self._best[1], interval)

    def _require_result(self) -> None:
        trials = read_trials(self._run.path)
        if (trials["outcome"] == "complete").any():
            return
        last = trials.sort_values("trial").iloc[-1]
        counts = ", ".join(f"{count} {name}" for name, count in trials["outcome"].value_counts().items())
        raise ChunksmithError(
            f"no trial gave a result ({counts}); the last: {last['failure']}: {last['failure_detail']} "
            f"Engine log: {last['engine_log']}"
        )

    def _begin_provenance(self) -> None:
        path = self._run.provenance
        self._provenance = json.loads(path.read_text()) if path.exists() else {"engines": [], "processes": []}
        here = {**collect(), "command": sys.argv, "seed": self._spec.seed, "baseline": self._spec.baseline_point()}
        self._provenance["processes"].append(here)
        self._write_provenance()

    def _engine_started(self, warm: WarmEngine, warm_up_s: float) -> None:
        info = asdict(warm.info)
        self._provenance["engines"].append({"group": dict(warm.group), "warm_up_s": warm_up_s, **info})
        self._write_provenance()
        self._progress.engine_state(f"{warm.info.engine_id} warm after {warm.info.start_s:.1f} s")

    def _write_provenance(self) -> None:
        write_text_atomic(self._run.provenance, json.dumps(self._provenance, indent=1, default=str) + "\n")


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number:05d}"


def _verdict(result: TrialResult) -> str:
    if result.measurement is not None:
        interval = result.measurement.interval
        return f"{describe_interval(interval)} of the baseline, {interval.pairs} pairs"
    return f"{result.outcome}: {result.failure}: {result.detail}"


def _logs(result: TrialResult, spec: SweepSpec) -> list[float]:
    """Log ratios of a complete trial's pairs."""
    assert result.measurement is not None
    metric = spec.objective.metric
    pairs = zip(
        result.measurement.values("candidate", metric), result.measurement.values("baseline", metric), strict=True
    )
    return [math.log(candidate / baseline) for candidate, baseline in pairs]
