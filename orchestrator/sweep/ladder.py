"""The rungs of a study below full blocks: which points are worth a trial."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from orchestrator.errors import ChunksmithError
from orchestrator.measurement import PairedMeasurement, PairPlan
from orchestrator.measurement.stats import PooledNoise, paired_ratio
from orchestrator.records import RunFolder
from orchestrator.search import Point
from orchestrator.search.fidelity import Fidelity, Job, Ladder, Rung
from orchestrator.sweep.fidelity_section import FidelitySection, short_spec
from orchestrator.sweep.lab_twin import NoTwinError, twin_spec
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.planned import Planned, plan_points, why_not_planned
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.progress import Progress
from orchestrator.sweep.rows import Outcome, PlacedBlock, TrialResult
from orchestrator.sweep.rung_records import RungRecord, RungRecords
from orchestrator.sweep.serving import TrialFailure
from orchestrator.sweep.spec import SweepSpec

T = TypeVar("T")

_ERROR = 0.05
"""Share of rungs on which some interval misses."""


class Attempt(Protocol):
    """Measures, again if an engine is lost under it; see ``Sweep``."""

    def __call__(self, measure: Callable[[], T], before: list[PlacedBlock]) -> tuple[T, int]: ...


class Climb:
    """Takes the points of one study up to the rung ``full``, where they become its trials.

    A rung is measured whole before its best points climb, so that the noise of all its pairs is known when they are
    compared. Each measurement is on disk before it counts, numbered in the order of the hand-outs: a study that is
    resumed finds what it measured, and goes on as an undisturbed one.

    Args:
        bench: Where full blocks are measured; its warm engines serve the short ones too.
        pool: The bench's engines.
        make_lab: Makes kernel labs for a study of another engine; None where there cannot be any.
        on_start: Called with an engine that has started for the ladder, and the seconds of its first block.
    """

    def __init__(
        self,
        spec: SweepSpec,
        section: FidelitySection,
        run: RunFolder,
        *,
        bench: Bench,
        pool: EnginePool,
        make_lab: MakeEngine | None,
        on_start: Callable[[WarmEngine, float], None],
        progress: Progress,
        attempt: Attempt,
    ) -> None:
        self._spec, self._section, self._run = spec, section, run
        self._bench, self._pool, self._make_lab = bench, pool, make_lab
        self._on_start, self._progress, self._attempt = on_start, progress, attempt
        self._records = RungRecords(spec, run)

    def choose(self, points: Sequence[Point]) -> list[Point] | None:
        """The points that climb to the rung ``full``, best first; None when no rung below it can be climbed here.

        Raises:
            ChunksmithError: No point gave a figure on some rung.
        """
        names = self._climbable()
        if len(names) == 1:
            self._progress.say("rung full: no rung below it can be climbed: every trial gets full blocks")
            return None
        rungs = self._section.rungs_for(names, self._spec.trials)
        points = self._entering(points, rungs)
        planned = self._planned(points) if names[0] == "planning" else []
        points = [one.point for one in planned] or points
        ladder = self._ladder(points, rungs)
        number = self._spec.trials
        for rung, fidelity in enumerate(names[:-1]):
            jobs = list(iter(ladder.next, None))
            if fidelity == "planning":
                found = [planned[job.point] for job in jobs]
            else:
                self._progress.climb(len(jobs))
                found = self._measured(fidelity, [points[job.point] for job in jobs], number)
            self._report(ladder, jobs, found)
            number += len(jobs)
            self._say(fidelity, found, len(ladder.promoted(rung)))
            if not ladder.promoted(rung):
                raise ChunksmithError(f"no point gave a figure on the rung {fidelity}; the last: {found[-1].failure}")
        return [points[job.point] for job in iter(ladder.next, None)]

    def _climbable(self) -> list[Fidelity]:
        """The rungs that there are here; each of the others is named with the reason."""
        kept: list[Fidelity] = []
        for rung in self._section.rungs:
            if (reason := self._why_not(rung)) is None:
                kept.append(rung)
            else:
                self._progress.say(f"rung {rung}: skipped: {reason}")
        return kept

    def _why_not(self, rung: Fidelity) -> str | None:
        if rung == "planning":
            return why_not_planned(self._spec)
        if rung == "simulator":
            return "there is no simulator engine"
        if rung == "lab":
            try:
                twin_spec(self._spec)
            except NoTwinError as error:
                return str(error)
            return None if self._make_lab is not None else "no kernel lab can be started"
        return None

    def _entering(self, points: Sequence[Point], rungs: Sequence[Rung]) -> list[Point]:
        """The points of the lowest rung: all of them, or a random choice where they are too many."""
        most = self._section.entering(len(points), rungs)
        chosen = random.Random(f"ladder/{self._spec.seed}").sample(range(len(points)), most)
        return [points[index] for index in sorted(chosen)]

    def _ladder(self, points: Sequence[Point], rungs: Sequence[Rung]) -> Ladder:
        return Ladder(
            len(points),
            rungs,
            eta=self._section.eta,
            direction=self._spec.objective.direction,
            slack=self._section.slack,
            groups=[json.dumps(dict(self._bench.group_of(point)), sort_keys=True) for point in points],
        )

    def _planned(self, points: Sequence[Point]) -> list[RungRecord]:
        """The rung ``planning``, those with the least workspace first: what is as fast in less of it is better."""
        if not self._records.planned():
            begun = datetime.now(UTC)
            found = plan_points(self._spec, points, self._bench)
            results = [
                (self._planned_result(self._spec.trials + place, one, begun), one.columns())
                for place, one in enumerate(sorted(found, key=lambda one: one.workspace_bytes))
            ]
            self._records.write_planned(results)
        return self._records.planned()

    def _planned_result(self, number: int, one: Planned, begun: datetime) -> TrialResult:
        if one.refusal is not None:
            return self._result(number, one.point, "infeasible", begun, failure="constraint", detail=one.refusal)
        return self._result(number, one.point, "complete", begun)

    def _measured(self, fidelity: Fidelity, points: Sequence[Point], first: int) -> list[RungRecord]:
        """Short blocks at each point, on the study's engine or on the lab."""
        if fidelity == "lab":
            return self._in_lab(points, first)
        bench = Bench(short_spec(self._spec, self._section), self._pool, self._on_start)
        return self._in_turn(fidelity, bench, points, first)

    def _in_lab(self, points: Sequence[Point], first: int) -> list[RungRecord]:
        """The lab takes the place of the study's own engines, which start again when they are needed."""
        assert self._make_lab is not None
        self._pool.stop_all()
        twin = twin_spec(self._spec)
        group = self._bench.group_of(self._spec.baseline_point())
        pool = EnginePool(self._make_lab, twin.engine_config(), group, capacity=self._pool.capacity)
        try:
            found = self._in_turn("lab", Bench(short_spec(twin, self._section), pool, self._on_start), points, first)
        except BaseException:
            pool.discard_all()
            raise
        pool.stop_all()
        return found

    def _in_turn(self, fidelity: Fidelity, bench: Bench, points: Sequence[Point], first: int) -> list[RungRecord]:
        found, plan = [], self._section.short_plan()
        # The first block of its size on an engine is slower than all that follow, and must not count for one point.
        warming = replace(plan, warmup_blocks=max(plan.warmup_blocks, 1))
        for place, point in enumerate(points):
            label = f"{fidelity} {place + 1} of {len(points)}"
            found.append(self._one(fidelity, bench, point, first + place, label, plan if place else warming))
        return found

    def _one(
        self, fidelity: Fidelity, bench: Bench, point: Point, number: int, label: str, plan: PairPlan
    ) -> RungRecord:
        """Measure and record a point, unless that was done."""
        if (known := self._records.known.get(number)) is not None:
            if known.point != point:
                raise ChunksmithError(
                    f"{self._run.path}: trial {number} is of another point than the ladder hands out now; go on with "
                    "the Chunksmith that began the run (see provenance.json)"
                )
            return known
        self._progress.begin(label, point)
        begun = datetime.now(UTC)
        before: list[PlacedBlock] = []
        try:
            (measurement, placed), attempt = self._attempt(lambda: bench.compare(number, "search", point, plan), before)
        except TrialFailure as failure:
            outcome: Outcome = "lost" if failure.lost else "infeasible" if failure.label == "slo" else "failed"
            why = {"failure": failure.label, "detail": failure.detail, "log_path": failure.log_path}
            result = self._result(number, point, outcome, begun, attempt=failure.attempt, **why)
            record = self._records.write(fidelity, result, before)
        else:
            info = [one.info for one in placed if one.block.role == "candidate"][-1]
            result = self._result(number, point, "complete", begun, attempt=attempt, measurement=measurement, info=info)
            record = self._records.write(fidelity, result, [*before, *placed])
        self._progress.end(label, point, record.failure or f"{record.ratio:.3f} of the baseline")
        return record

    def _result(self, number: int, point: Point, outcome: Outcome, begun: datetime, **more: Any) -> TrialResult:
        attempt, measurement = more.pop("attempt", 0), more.pop("measurement", None)
        assert measurement is None or isinstance(measurement, PairedMeasurement)
        return TrialResult(
            number=number,
            point=point,
            group=self._bench.group_of(point),
            outcome=outcome,
            attempt=attempt,
            started_at=begun,
            measurement=measurement,
            **more,
        )

    def _report(self, ladder: Ladder, jobs: Sequence[Job], found: Sequence[RungRecord]) -> None:
        """Tell the ladder a whole rung. The pairs of all its points say how noisy each of them is, and all intervals
        hold at once with 95 % (Bonferroni's inequality)."""
        level = 1 - _ERROR / len(found)
        for job, record in zip(jobs, found, strict=True):
            if record.ratio is None:
                ladder.fail(job)
                continue
            others = PooledNoise()
            for other in found:
                if other is not record and other.log_ratios:
                    others.add(other.log_ratios)
            ladder.report(job, record.ratio, _interval(record.log_ratios, others, level))

    def _say(self, fidelity: Fidelity, found: Sequence[RungRecord], climbed: int) -> None:
        failed = sum(record.ratio is None for record in found)
        seconds = sum(record.measuring_s for record in found)
        trouble = f", {failed} gave no figure" if failed else ""
        took = f", {seconds:.1f} s of blocks" if seconds else ""
        self._progress.say(f"rung {fidelity}: {len(found)} points{trouble}{took}; {climbed} climb")


def _interval(log_ratios: Sequence[float], others: PooledNoise, level: float) -> tuple[float, float] | None:
    if not log_ratios:
        return None
    ratios = [math.exp(one) for one in log_ratios]
    found = paired_ratio(ratios, [1.0] * len(ratios), level=level, pooled=others)
    return found.low, found.high
