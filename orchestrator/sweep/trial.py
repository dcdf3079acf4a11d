"""One trial in one slot: from its point to what is recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.engines import EngineConfig, EngineError
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import GOODPUT_AT_SLO, PairPlan
from orchestrator.search import Point
from orchestrator.sweep.knob_check import LABEL as KNOB_NOT_IN_FORCE
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.memory import Memory
from orchestrator.sweep.proposals import ruled_out
from orchestrator.sweep.reuse import Reusable
from orchestrator.sweep.rows import Outcome, Pairing, PlacedBlock, TrialResult, as_dropped
from orchestrator.sweep.serving import TrialFailure, seed_of
from orchestrator.sweep.slot import Slot, SlotRetired
from orchestrator.sweep.spec import SweepSpec

BASELINE_FAILED: Final = "baseline-failed"
"""Class of a trial whose baseline failed, which says nothing of its point. The detail names the failure."""


@dataclass(kw_only=True, eq=False)
class Job:
    """A trial that was asked for, and what became of it in the slots that could not end it.

    Attributes:
        label: Its number in words.
        before: Blocks of attempts that lost their engine.
        made: How many these were.
        starting_s: Seconds of the engine starts in it.
    """

    number: int
    point: Point
    label: str
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    before: list[PlacedBlock] = field(default_factory=list)
    made: int = 0
    starting_s: float = 0.0


@dataclass(frozen=True)
class Measured:
    """A trial that has ended, with all its blocks.

    Attributes:
        refusal: Why no other trial can fare better; None as a rule.
    """

    result: TrialResult
    placed: Sequence[PlacedBlock]
    refusal: ChunksmithError | None = None


class TrialBench:
    """Measures trials of one study, in any slot."""

    def __init__(self, spec: SweepSpec, base: EngineConfig, memory: Memory, ledger: Ledger) -> None:
        self._spec, self._base, self._memory, self._ledger = spec, base, memory, ledger
        self._space, self._baseline = spec.search_space(), spec.baseline_point()
        self._baseline_group = {name: self._baseline[name] for name in self._space.names("engine")}

    def measure(self, slot: Slot, job: Job) -> Measured:
        """Measure a trial.

        Raises:
            SlotRetired: Another slot has to; the job knows how far it came.
            BaselineError: The baseline's engine does not start.
        """
        slot.starting_s = 0.0
        try:
            return self._measured(slot, job)
        except SlotRetired as left:
            job.made, job.starting_s = left.made, job.starting_s + slot.starting_s
            raise

    def _measured(self, slot: Slot, job: Job) -> Measured:
        point, group = job.point, slot.bench.group_of(job.point)
        pairing = self._pairing(slot, group)

        def result(outcome: Outcome, attempt: int, **more: Any) -> TrialResult:
            return TrialResult(
                number=job.number,
                point=point,
                group=group,
                outcome=outcome,
                attempt=attempt,
                started_at=job.started_at,
                pairing=pairing,
                starting_s=job.starting_s + slot.starting_s,
                **more,
            )

        if rule := ruled_out(self._spec, self._space, self._base, point):
            return Measured(result("infeasible", 0, failure="constraint", detail=rule), [])
        if reused := self._reused(slot, point):
            return Measured(result("complete", 0, reused=reused), [])
        plan, noise = self._plan(job.number, pairing), self._ledger.noise
        # With a second objective nobody knows yet what is worse.
        best = self._ledger.best.interval if self._ledger.best and not self._spec.objectives else None
        try:
            (measurement, placed), attempt = slot.attempt(
                lambda: slot.bench.compare(
                    job.number, "search", point, plan, noise=noise, best_ratio=best.ratio if best else None
                ),
                job.before,
                job.made,
            )
        except TrialFailure as failure:
            outcome: Outcome = "lost" if failure.lost else "failed"
            label, detail = failure.label, failure.detail
            if outcome == "failed" and self._is_the_baselines(failure, group):
                label, detail = BASELINE_FAILED, f"{label}: {detail}"
            elif label == "slo":
                outcome = "infeasible"
            why = {"failure": label, "detail": detail, "log_path": failure.log_path}
            return Measured(result(outcome, failure.attempt, **why), job.before, self._refusal(failure))
        info = [one.info for one in placed if one.block.role == "candidate"][-1]
        every = [*job.before, *placed]
        if missed := self._missed_slo(placed):
            return Measured(result("infeasible", attempt, failure="slo", detail=missed, info=info), as_dropped(every))
        return Measured(result("complete", attempt, measurement=measurement, info=info), every)

    def _is_the_baselines(self, failure: TrialFailure, group: Point) -> bool:
        """Whether the baseline's own block failed, and not the first one of an engine that the point alone asks for."""
        if not failure.at_baseline:
            return False
        if failure.label == "slo" or group == self._baseline_group:
            return True
        last = failure.placed[-1].block if failure.placed else None
        return last is not None and last.role == "baseline" and last.outcome == "failed"

    def _refusal(self, failure: TrialFailure) -> ChunksmithError | None:
        """Where all trials share this engine and this baseline, none can fare better."""
        if failure.label == KNOB_NOT_IN_FORCE and failure.at_baseline and len(self._space.groups()) == 1:
            return ChunksmithError(f"failed: {failure}")
        return None

    def _reused(self, slot: Slot, point: Point) -> Reusable | None:
        """The trial of an earlier run that measured a point as this one would; None when there is none."""
        if not self._memory.may_hold(point):
            return None
        try:
            return self._memory.find(point, slot.bench.engine(self._baseline_group).info)
        except (EngineError, TrialFailure):
            # What is wrong with the engine shows when the point is measured, and is treated there.
            return None

    def _pairing(self, slot: Slot, group: Point) -> Pairing:
        if group == self._baseline_group:
            return "one engine"
        return "two warm engines" if slot.pool.capacity > 1 else "alternated starts"

    def _plan(self, number: int, pairing: Pairing) -> PairPlan:
        plan = self._spec.pair_plan(coin_seed=seed_of(self._spec.seed, "order", number))
        if self._spec.objectives:
            # What is known well enough of the first objective may not be of the others.
            plan = replace(plan, half_width=0.0, delta=None, coin_seed=None)
        # Taking turns, one engine serves two blocks at a time; a coin would cost more starts.
        return replace(plan, coin_seed=None) if pairing == "alternated starts" else plan

    def _missed_slo(self, placed: Sequence[PlacedBlock]) -> str | None:
        """How a point misses the SLO over all its blocks that count; None when it keeps it or there is none."""
        slo = self._spec.slo
        if slo is None or self._spec.objective.metric == GOODPUT_AT_SLO:
            return None
        counted = [
            one.block.result.requests for one in placed if one.block.role == "candidate" and not one.block.dropped
        ]
        requests = [request for block in counted for request in block]
        kept = slo.kept(requests)
        if kept >= slo.share * len(requests):
            return None
        return f"{kept} of {len(requests)} requests keep it, {slo.share:.0%} have to"
