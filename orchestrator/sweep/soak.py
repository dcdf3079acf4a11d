"""Soak a point: rounds of its normal load and of the worst batches that the scheduler can form, until one breaks it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.engines import (
    BlockResult,
    Counters,
    EngineConfig,
    EngineError,
    InForce,
    RequestTimeline,
)
from orchestrator.errors import UserError
from orchestrator.measurement import MeasuredBlock, block_metrics, dispatch_slip
from orchestrator.planning import WorstBatch
from orchestrator.records import RunFolder, SoakRecord
from orchestrator.search import Point, serve_command
from orchestrator.sweep.knob_check import LABEL, not_in_force
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.sweep.serving import Serving, TrialFailure, seed_of
from orchestrator.sweep.soak_batches import batch_requests, engine_batches
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import AllAtOnce, ArrivalKind

NORMAL_LOAD = "normal load"
ENGINE_START = "engine start"
"""Names in the place of a batch: the spec's workload, and a start that failed."""

EXCUSED_LOSSES = 1
"""Engines that may be lost in one soak: a node can fail, but a batch that kills every engine is at fault."""


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """A soak that has ended, and all its blocks. They are marked as dropped: nothing is compared with them."""

    record: SoakRecord
    placed: Sequence[PlacedBlock]

    @property
    def verdict(self) -> str:
        """In a few words."""
        record = self.record
        if record.passed:
            return f"soak passed ({record.blocks} blocks in {record.seconds:.0f} s)"
        return f"soak failed at {record.batch!r}: {record.failure}: {record.detail}"


class Soak:
    """Soaks points of one study.

    A round is a block of the spec's workload and load, then each of ``planning.worst_batches`` as a block of its own,
    with all its requests sent at once. Every block has tokens of its own, which its seed fixes.

    A block fails when one of its requests does, when the engine does not answer after it (its report ends every block),
    when a knob of the point is not in force, or when anything else in force has changed since the first block. A block
    that never entered the workspace path or found its own prompts in the prefix cache does not fail: a short batch has
    nothing to gather, and a preempted request finds what it computed before.

    Args:
        base: What every engine of the study has in common.
        say: Gets one line for each block.
    """

    def __init__(
        self,
        spec: SweepSpec,
        base: EngineConfig,
        bench: Bench,
        pool: EnginePool,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spec, self._base, self._bench, self._pool, self._say = spec, base, bench, pool, say

    def run(self, trial: int, point: Point, rounds: int) -> Soaked:
        """Soak a trial's point, until the first failure.

        Raises:
            BaselineError: The point shares the baseline's engine, and that does not start.
            ChunksmithError: The engine does not say what bounds its batches.
        """
        one = _OneSoak(
            spec=self._spec,
            bench=self._bench,
            pool=self._pool,
            serving=Serving(self._spec, self._pool),
            say=self._say,
            trial=trial,
            point=point,
        )
        begin = time.perf_counter()
        batches: Sequence[WorstBatch] = ()
        failure: TrialFailure | None = None
        try:
            for number in range(rounds):
                normal = one.serve(number, 0, None)
                batches = engine_batches(normal.info, normal.block.result)
                for index, batch in enumerate(batches, start=1):
                    one.serve(number, index, batch)
        except TrialFailure as error:
            failure = error
        serve_args, env = serve_command(self._base, point)
        record = SoakRecord(
            study=self._spec.study,
            trial=trial,
            point=dict(point),
            passed=failure is None,
            rounds=rounds,
            blocks=len(one.placed),
            seconds=time.perf_counter() - begin,
            lost_engines=one.lost,
            batches=[NORMAL_LOAD, *(batch.name for batch in batches)],
            serve_args=serve_args,
            env=env,
        )
        if failure is not None:
            record = dataclasses.replace(
                record,
                **one.culprit,
                failure=failure.label,
                detail=failure.detail,
                engine_log=failure.log_path,
            )
        return Soaked(record=record, placed=one.placed)


def point_to_soak(spec: SweepSpec, run: RunFolder, trial: int) -> Point:
    """The point of a recorded trial.

    Raises:
        UserError: There is no such trial, or it did not even serve its normal load.
    """
    trials = Ledger(spec, run).trials
    if trial not in trials:
        held = f"trials 0 to {max(trials)} are recorded" if trials else "no trial is recorded yet"
        raise UserError(f"{run.path}: there is no trial {trial}; {held}")
    if (found := trials[trial]).outcome != "complete":
        raise UserError(
            f"{run.path}: trial {trial} is {found.outcome} ({found.failure}); only a complete one is soaked"
        )
    return found.point


def soak_trial(
    spec: SweepSpec,
    run: RunFolder,
    make_engine: MakeEngine,
    trial: int,
    point: Point,
    *,
    rounds: int,
    say: Callable[[str], None],
) -> SoakRecord:
    """Soak a recorded trial on an engine that is started for it, and record how it ended. The caller holds the run's
    lock.

    Args:
        say: Gets a line for the engine's start and for each block.

    Raises:
        ChunksmithError: As ``Soak.run``, or the records cannot be written. No engine is left.
    """
    ledger, provenance, base = Ledger(spec, run), Provenance(run.provenance, spec), spec.engine_config()
    baseline = spec.baseline_point()
    group = {name: baseline[name] for name in spec.search_space().names("engine")}
    pool = EnginePool(make_engine, base, group, capacity=1)

    def started(warm: WarmEngine, warm_up_s: float) -> None:
        provenance.add_engine(warm, warm_up_s)
        say(f"{warm.info.engine_id} warm after {warm.info.start_s:.1f} s")

    try:
        soaked = Soak(spec, base, Bench(spec, pool, started), pool, say).run(trial, point, rounds)
        ledger.write_soak(trial, soaked.placed, soaked.record)
    except BaseException:
        pool.discard_all()
        raise
    pool.stop_all()
    return soaked.record


@dataclass(kw_only=True)
class _OneSoak:
    """One soak while it runs. ``culprit`` describes the batch in hand, as fields of its record."""

    spec: SweepSpec
    bench: Bench
    pool: EnginePool
    serving: Serving
    say: Callable[[str], None]
    trial: int
    point: Point
    placed: list[PlacedBlock] = field(default_factory=list)
    lost: int = 0
    culprit: dict[str, Any] = field(default_factory=dict)
    reference: InForce | None = None

    def serve(self, number: int, index: int, batch: WorstBatch | None) -> PlacedBlock:
        """Serve one block of a round; None is the normal load. Raises TrialFailure."""
        name = batch.name if batch else NORMAL_LOAD
        while True:
            begin = time.perf_counter()
            try:
                placed = self._serve_once(number, index, batch)
            except (EngineError, TrialFailure) as error:
                failure = TrialFailure.of_engine(error) if isinstance(error, EngineError) else error
                self.say(f"round {number + 1}, {name}: failed: {failure}")
                if failure.lost and self.lost < EXCUSED_LOSSES:
                    self.lost, self.reference = self.lost + 1, None
                    continue
                raise failure from error
            requests = placed.block.result.requests
            tokens = sum(one.prompt_tokens + one.output_tokens for one in requests)
            seconds = time.perf_counter() - begin
            self.say(f"round {number + 1}, {name}: {len(requests)} requests, {tokens:,} tokens: ok ({seconds:.1f} s)")
            return placed

    def _serve_once(self, number: int, index: int, batch: WorstBatch | None) -> PlacedBlock:
        self.culprit = {"batch": ENGINE_START, "why": "no engine was ready at the point"}
        engine = self.bench.engine(self.bench.group_of(self.point))
        seed = seed_of(self.spec.seed, "soak", self.trial, number, index)
        vocab_size = engine.info.vocab_size
        if batch is None:
            requests = self.spec.block_workload(self.point).draw([seed], vocab_size=vocab_size)
            arrivals: ArrivalKind = self.spec.block_load(self.point)
        else:
            requests = batch_requests(batch, seed, vocab_size)
            arrivals = AllAtOnce()
        load = arrivals.model_dump()
        self.culprit = {
            "batch": batch.name if batch else NORMAL_LOAD,
            "why": batch.why if batch else "the workload of the spec, under its load",
            "lengths": [(len(one.prompt.token_ids), one.prompt.output_len) for one in requests],
            "load": load,
            "seed": seed,
            "vocab_size": vocab_size,
        }
        schedule = arrivals.schedule(requests, [seed])

        def place(result: BlockResult, retune_s: float, failure: str | None) -> PlacedBlock:
            block = MeasuredBlock(
                role="candidate",
                pair=number,
                dropped=True,
                seed=seed,
                retune_s=retune_s,
                result=result,
                metrics=block_metrics(
                    result.requests, result.duration_s, slo=self.spec.slo, gpus=self.spec.resources.gpus
                ),
                load=json.dumps({**load, "batch": self.culprit["batch"]}, sort_keys=True),
                slip=dispatch_slip(result.requests, is_closed=schedule.is_closed),
                outcome="failed" if failure else "complete",
                failure=failure,
            )
            self.placed.append(PlacedBlock(block=block, info=engine.info, point=self.point))
            return self.placed[-1]

        started_at = datetime.now(UTC)
        try:
            retune_s, result = self.serving.run(engine, self.point, requests, schedule)
        except EngineError as error:
            place(_cut_short(started_at, error.partial), 0.0, f"{error.label}: {error.detail}")
            raise
        failed = self._failure(engine, result)
        placed = place(result, retune_s, f"{failed.label}: {failed.detail}" if failed else None)
        if failed is not None:
            # What this engine would give from here on is worth nothing.
            self.pool.discard(engine)
            raise failed
        return placed

    def _failure(self, engine: WarmEngine, result: BlockResult) -> TrialFailure | None:
        info = engine.info
        failed = [one for one in result.requests if one.error]
        if failed:
            detail = f"{len(failed)} of {len(result.requests)} requests failed, the first with: {failed[0].error}"
            return TrialFailure("request-failed", detail, info.log_path)
        # With the counters of a block that used everything, the check is of the values in force alone.
        used = dataclasses.replace(result.counters, workspace_entries=1, area_plans=1)
        asked = dataclasses.replace(result, counters=used)
        if reason := not_in_force(self.serving.space, self.point, self.spec.engine.plugin, info, asked):
            return TrialFailure(LABEL, reason, info.log_path)
        before = self.reference = self.reference or result.in_force
        for name in (item.name for item in dataclasses.fields(before)):
            old, new = getattr(before, name), getattr(result.in_force, name)
            if old != new:
                return TrialFailure("changed", f"{name} went from {old} to {new} during the soak", info.log_path)
        return None


def _cut_short(started_at: datetime, partial: Sequence[RequestTimeline]) -> BlockResult:
    """What is left of a block whose engine died."""
    span = max((one.token_times_s[-1] for one in partial if one.token_times_s), default=0.0)
    return BlockResult(
        started_at=started_at,
        duration_s=max(span, 1e-6),
        requests=partial,
        in_force=InForce(),
        counters=Counters(),
    )
