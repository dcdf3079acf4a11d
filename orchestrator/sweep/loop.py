"""The sweep: ask, measure, record, tell; then confirm the best with fresh prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from orchestrator.analysis import best
from orchestrator.engines import EngineError
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import GOODPUT_AT_SLO, PairPlan
from orchestrator.records import RunFolder
from orchestrator.search import Point
from orchestrator.search.fidelity.listed import ListedPoints
from orchestrator.sweep.knob_check import LABEL as KNOB_NOT_IN_FORCE
from orchestrator.sweep.ladder import Climb
from orchestrator.sweep.ledger import Ledger, TrialRecord
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.memory import Memory
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.progress import Progress, describe, describe_interval
from orchestrator.sweep.proposals import Proposals, make_proposals, ruled_out
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.reuse import Reusable
from orchestrator.sweep.rows import Outcome, Pairing, PlacedBlock, TrialResult, as_dropped
from orchestrator.sweep.serving import TrialFailure, seed_of
from orchestrator.sweep.soak import Soak
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.study import Told, TrialBook, open_study

T = TypeVar("T")

MAX_ATTEMPTS = 3
"""How often a trial is begun whose engine is lost under it."""


class Sweep:
    """One study, from its first or its next trial to the confirmed finalists. The caller holds the run's lock.

    What is measured is on disk before it is told to Optuna, under names that the trial's number fixes: a trial that
    is measured again after a crash takes its own place.

    Args:
        engines: How many engines may be warm at a time, 1 or 2. With one, a point that needs an engine of its own is
            paired with the baseline in alternated starts.
        make_lab: Makes kernel labs for the rung ``lab`` of a study of another engine; None where there can be none.
    """

    def __init__(
        self,
        spec: SweepSpec,
        run: RunFolder,
        make_engine: MakeEngine,
        progress: Progress,
        *,
        engines: int = 2,
        make_lab: MakeEngine | None = None,
    ) -> None:
        self._spec, self._run, self._progress, self._make_lab = spec, run, progress, make_lab
        self._trials = spec.trials
        self._space = spec.search_space()
        self._base = spec.engine_config()
        baseline = spec.baseline_point()
        first = {name: baseline[name] for name in self._space.names("engine")}
        self._first_group, self._starting_s = first, 0.0
        self._pool = EnginePool(make_engine, self._base, first, capacity=engines)
        self._bench = Bench(spec, self._pool, self._engine_started)

    def run(self) -> None:
        """Do what is left of the study. Whatever ends it, no engine is left and nothing recorded is lost.

        Raises:
            ChunksmithError: No trial gave a result, or the knobs of the space had no effect.
        """
        self._memory = Memory.open(self._run, self._spec)
        self._provenance = Provenance(self._run.provenance, self._spec)
        self._ledger = Ledger(self._spec, self._run)
        self._progress.done = len(self._ledger.trials)
        self._show_best()
        proposals = make_proposals(self._spec, self._base, engines=self._pool.capacity, earlier=self._memory.earlier)
        directions = [one.direction for one in self._spec.all_objectives]
        try:
            proposals = self._climbed(proposals)
            study = open_study(self._run.journal, name=self._spec.study, proposals=proposals, directions=directions)
            book = TrialBook(study, proposals, self._trials, self._spec.stop)
            while (asked := book.next()) is not None:
                number, point = asked
                # A process that died before it could tell has left the record: the trial is not measured again.
                is_recorded = number in self._ledger.trials
                refusal = None if is_recorded else self._trial(number, point)
                book.tell(number, self._told(self._ledger.trials[number]))
                self._show_best()
                if refusal is not None:
                    raise refusal
            if book.ended is not None:
                self._progress.search_ended(len(self._ledger.trials), book.ended)
            self._ledger.require_result()
            self._confirm()
            self._soak_winner()
        except BaseException:
            self._pool.discard_all()
            raise
        self._progress.engine_state("stopping")
        self._pool.stop_all()

    def _climbed(self, proposals: Proposals) -> Proposals:
        """The points that a ladder finds worth a trial, where the spec asks for one; there is one trial for each."""
        section = self._spec.fidelity
        if section is None:
            return proposals
        climb = Climb(
            self._spec,
            section,
            self._run,
            bench=self._bench,
            pool=self._pool,
            make_lab=self._make_lab,
            on_start=self._engine_started,
            progress=self._progress,
            attempt=self._attempt,
        )
        points = climb.choose(proposals.points)
        if points is None:
            return proposals
        self._trials = len(points)
        self._progress.climbed(self._trials - len(self._ledger.trials))
        return replace(proposals, points=points, sampler=ListedPoints(points, proposals.choices))

    def _trial(self, number: int, point: Point) -> ChunksmithError | None:
        """Measure a trial and record it; return the reason if no other trial can fare better."""
        label = f"trial {number + 1} of {self._trials}"
        self._progress.begin(label, point)
        started_at, ledger, self._starting_s = datetime.now(UTC), self._ledger, 0.0

        group = self._bench.group_of(point)
        pairing = self._pairing(group)

        def record(outcome: Outcome, attempt: int, placed: Sequence[PlacedBlock], **more: Any) -> None:
            result = TrialResult(
                number=number,
                point=point,
                group=group,
                outcome=outcome,
                attempt=attempt,
                started_at=started_at,
                pairing=pairing,
                starting_s=self._starting_s,
                **more,
            )
            ledger.write_trial(result, placed)
            self._progress.end(label, point, _verdict(ledger.trials[number]))

        if rule := ruled_out(self._spec, self._space, self._base, point):
            record("infeasible", 0, [], failure="constraint", detail=rule)
            return None
        if reused := self._reused(point):
            record("complete", 0, [], reused=reused)
            return None
        plan = self._plan(number, pairing)
        # With a second objective nobody knows yet what is worse.
        best = ledger.best.interval if ledger.best and not self._spec.objectives else None
        before: list[PlacedBlock] = []
        try:
            (measurement, placed), attempt = self._attempt(
                lambda: self._bench.compare(
                    number, "search", point, plan, noise=ledger.noise, best_ratio=best.ratio if best else None
                ),
                before,
            )
        except TrialFailure as failure:
            outcome: Outcome = "lost" if failure.lost else "failed"
            if failure.label == "slo" and not failure.at_baseline:
                outcome = "infeasible"
            why = {"failure": failure.label, "detail": failure.detail, "log_path": failure.log_path}
            record(outcome, failure.attempt, before, **why)
            if failure.label == KNOB_NOT_IN_FORCE and failure.at_baseline and len(self._space.groups()) == 1:
                # All trials share this engine and this baseline.
                return ChunksmithError(f"failed: {failure}")
            return None
        info = [one.info for one in placed if one.block.role == "candidate"][-1]
        if missed := self._missed_slo(placed):
            record("infeasible", attempt, as_dropped([*before, *placed]), failure="slo", detail=missed, info=info)
        else:
            record("complete", attempt, [*before, *placed], measurement=measurement, info=info)
        return None

    def _reused(self, point: Point) -> Reusable | None:
        """The trial of an earlier run that measured a point as this one would; None when there is none."""
        if not self._memory.may_hold(point):
            return None
        try:
            return self._memory.find(point, self._bench.engine(self._first_group).info)
        except (EngineError, TrialFailure):
            # What is wrong with the engine shows when the point is measured, and is treated there.
            return None

    def _pairing(self, group: Point) -> Pairing:
        if group == self._first_group:
            return "one engine"
        return "two warm engines" if self._pool.capacity > 1 else "alternated starts"

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

    def _told(self, trial: TrialRecord) -> Told:
        # Seconds decide where engines are chosen. Tenths: what matters is their scale, and a repeat is to agree.
        is_timed = bool(trial.ratios and self._first_group and trial.measuring_s)
        return Told(
            ratios=trial.ratios,
            log_variance=trial.log_variance,
            broken=None if trial.outcome in ("complete", "lost") else trial.label,
            trial_s=max(round(trial.measuring_s, 1), 0.1) if is_timed else None,
            start_s=round(trial.starting_s, 1) if is_timed and trial.starting_s else None,
        )

    def _confirm(self) -> None:
        """Measure the best points again, on prompts that the search has not seen, and compare their greedy tokens."""
        self._progress.phase = "confirm"
        for rank, number in enumerate(self._ledger.finalists()):
            if self._ledger.is_confirmed(number):
                continue
            label, point = f"confirming {rank + 1} of {self._spec.confirm.points}", self._ledger.trials[number].point
            self._progress.begin(label, point)
            before: list[PlacedBlock] = []
            try:
                verdict, _ = self._attempt(partial(self._confirm_one, number, point), before)
            except TrialFailure as failure:
                verdict = f"failed: {failure}"
                self._ledger.write_failed_confirmation(number, before)
            self._progress.end(label, point, verdict)

    def _confirm_one(self, number: int, point: Point) -> str:
        plan = self._spec.confirm_plan()
        measurement, placed = self._bench.compare(number, "confirm", point, plan)
        greedy = self._bench.greedy(point)
        self._ledger.write_confirmation(number, placed, greedy)
        return describe_interval(measurement.interval)

    def _soak_winner(self) -> None:
        """Soak the point that would be recommended; where it breaks, the next one that would be then."""
        rounds = self._spec.soak.rounds
        while rounds and (answer := best(self._run.path)).decision == "winner" and answer.soak == "not run":
            assert answer.trial is not None
            number, point = answer.trial, self._ledger.trials[answer.trial].point
            self._progress.phase = "soak"
            label = f"soaking trial {number}"
            self._progress.say(f"{label}: {describe(point)}")
            soaked = Soak(self._spec, self._base, self._bench, self._pool, self._progress.say).run(
                number, point, rounds
            )
            self._ledger.write_soak(number, soaked.placed, soaked.record)
            self._progress.say(f"{label}: {soaked.verdict}")

    def _attempt(self, measure: Callable[[], T], before: list[PlacedBlock]) -> tuple[T, int]:
        """Measure, again if an engine is lost under it; return what it gave and the number of attempts before.

        Args:
            before: Gets the blocks of the attempts that failed, none of which counts.

        Raises:
            TrialFailure: It failed, or the engine of the last attempt was lost too.
        """
        for attempt in range(MAX_ATTEMPTS):
            try:
                return measure(), attempt
            except TrialFailure as error:
                failure = error
            before.extend(as_dropped(failure.placed))
            failure.attempt = attempt
            if not failure.lost:
                break
            self._progress.say(f"lost: {failure}; attempt {attempt + 1} of {MAX_ATTEMPTS}")
        raise failure

    def _show_best(self) -> None:
        best = self._ledger.best
        if best is not None and best.interval is not None:
            self._progress.best_so_far(best.point, best.interval)

    def _engine_started(self, warm: WarmEngine, warm_up_s: float) -> None:
        self._starting_s += warm.info.start_s + warm_up_s
        self._provenance.add_engine(warm, warm_up_s)
        self._progress.engine_is_warm(f"{warm.info.engine_id} warm after {warm.info.start_s:.1f} s")


def _verdict(trial: TrialRecord) -> str:
    if trial.interval is None:
        return f"{trial.outcome}: {trial.failure}"
    known = f", from {trial.reused_from}" if trial.reused_from else ""
    return f"{describe_interval(trial.interval)} of the baseline, {trial.interval.pairs} pairs{known}"
