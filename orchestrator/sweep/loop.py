"""The sweep: ask, measure, record, tell; then confirm the best with fresh prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from orchestrator.analysis import best
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import GOODPUT_AT_SLO, PairPlan
from orchestrator.records import RunFolder
from orchestrator.search import Point, group_schedule, violated
from orchestrator.sweep.knob_check import EQUALS_BASELINE, equals_baseline
from orchestrator.sweep.knob_check import LABEL as KNOB_NOT_IN_FORCE
from orchestrator.sweep.ledger import Ledger, TrialRecord
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.progress import Progress, describe, describe_interval
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.rows import Outcome, Pairing, PlacedBlock, TrialResult, as_dropped
from orchestrator.sweep.serving import TrialFailure, seed_of
from orchestrator.sweep.soak import Soak
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.study import TrialBook, open_study

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
    """

    def __init__(
        self, spec: SweepSpec, run: RunFolder, make_engine: MakeEngine, progress: Progress, *, engines: int = 2
    ) -> None:
        self._spec, self._run, self._progress = spec, run, progress
        self._space = spec.search_space()
        self._base = spec.engine_config()
        baseline = spec.baseline_point()
        first = {name: baseline[name] for name in self._space.names("engine")}
        self._schedule = group_schedule(self._space, trials=spec.trials, seed=spec.seed, first=first)
        self._first_group = first
        self._pool = EnginePool(make_engine, self._base, first, capacity=engines)
        self._bench = Bench(spec, self._pool, self._engine_started)

    def run(self) -> None:
        """Do what is left of the study. Whatever ends it, no engine is left and nothing recorded is lost.

        Raises:
            ChunksmithError: No trial gave a result, or the knobs of the space had no effect.
        """
        self._provenance = Provenance(self._run.provenance, self._spec)
        self._ledger = Ledger(self._spec, self._run)
        self._progress.done = len(self._ledger.trials)
        self._show_best()
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
            while (asked := book.next()) is not None:
                number, point = asked
                # A process that died before it could tell has left the record: the trial is not measured again.
                is_recorded = number in self._ledger.trials
                refusal = None if is_recorded else self._trial(number, point)
                self._tell(book, number, self._ledger.trials[number])
                self._show_best()
                if refusal is not None:
                    raise refusal
            self._ledger.require_result()
            self._confirm()
            self._soak_winner()
        except BaseException:
            self._pool.discard_all()
            raise
        self._progress.engine_state("stopping")
        self._pool.stop_all()

    def _trial(self, number: int, point: Point) -> ChunksmithError | None:
        """Measure a trial and record it; return the reason if no other trial can fare better."""
        label = f"trial {number + 1} of {self._spec.trials}"
        self._progress.begin(label, point)
        started_at, ledger = datetime.now(UTC), self._ledger

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
                **more,
            )
            ledger.write_trial(result, placed)
            self._progress.end(label, point, _verdict(ledger.trials[number]))

        if rule := self._violated(point):
            record("infeasible", 0, [], failure="constraint", detail=rule)
            return None
        plan, best = self._plan(number, pairing), ledger.best.interval if ledger.best else None
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

    def _pairing(self, group: Point) -> Pairing:
        if group == self._first_group:
            return "one engine"
        return "two warm engines" if self._pool.capacity > 1 else "alternated starts"

    def _plan(self, number: int, pairing: Pairing) -> PairPlan:
        plan = self._spec.pair_plan(coin_seed=seed_of(self._spec.seed, "order", number))
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

    def _violated(self, point: Point) -> str | None:
        if equals_baseline(point, self._spec.baseline_point(), self._base):
            return EQUALS_BASELINE
        args = self._base.args
        return violated(
            point,
            max_num_batched_tokens=args.get("max_num_batched_tokens"),
            max_num_seqs=args.get("max_num_seqs"),
        )

    def _tell(self, book: TrialBook, number: int, trial: TrialRecord) -> None:
        if trial.interval is not None:
            book.tell_ratio(number, trial.interval.ratio)
        else:
            book.tell_without_value(number, infeasible=trial.outcome == "infeasible")

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
        self._provenance.add_engine(warm, warm_up_s)
        self._progress.engine_is_warm(f"{warm.info.engine_id} warm after {warm.info.start_s:.1f} s")


def _verdict(trial: TrialRecord) -> str:
    if trial.interval is None:
        return f"{trial.outcome}: {trial.failure}"
    return f"{describe_interval(trial.interval)} of the baseline, {trial.interval.pairs} pairs"
