"""Serve one block on a warm engine and say what it is worth: retune, send, check what was really in force."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from orchestrator.engines import BlockResult, Counters, EngineError, InForce, RejectedError, StopRule, TunedRuns
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import (
    BlockOutcome,
    DispatchSlip,
    MeasuredBlock,
    Role,
    Slo,
    block_metrics,
    dispatch_slip,
    error_class,
    invalid_reason,
)
from orchestrator.search import Point, Space
from orchestrator.sweep.knob_check import LABEL, not_in_force
from orchestrator.sweep.pool import EnginePool, WarmEngine
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import ArrivalKind, Request, Schedule

CANCELLED = ("cancelled", "not_sent")
"""Classes of requests that did not end because their block was ended."""


class TrialFailure(ChunksmithError):
    """A measurement that must not become a number.

    Attributes:
        label: Failure class.
        lost: The engine was lost; a fresh one may well do better.
        at_baseline: It was the baseline that failed, not the point.
        attempt: Attempts that were made before the one that failed.
        placed: Blocks that were measured before, and the one that failed where its timelines are left.
    """

    def __init__(
        self, label: str, detail: str, log_path: str | None = None, *, lost: bool = False, at_baseline: bool = False
    ) -> None:
        super().__init__(f"{label}: {detail}" + (f" (engine log: {log_path})" if log_path else ""))
        self.label, self.detail, self.log_path = label, detail, log_path
        self.lost, self.at_baseline, self.attempt = lost, at_baseline, 0
        self.placed: list[PlacedBlock] = []

    @classmethod
    def of_engine(cls, error: EngineError) -> TrialFailure:
        """The same failure, as one of a trial."""
        return cls(error.label, error.detail, error.log_path, lost=error.lost)


class Serving:
    """Serves blocks of one study on the pool's engines, and keeps every block in ``placed``, the failed ones too."""

    def __init__(self, spec: SweepSpec, pool: EnginePool) -> None:
        self._pool, self._space = pool, spec.search_space()
        self._slo, self._gpus = spec.slo, spec.resources.gpus
        self._plugin = spec.engine.plugin
        self._wants_hits = spec.blocks.prefix_cache_hits == "wanted"
        self.placed: list[PlacedBlock] = []

    @property
    def space(self) -> Space:
        return self._space

    def serve(
        self,
        engine: WarmEngine,
        point: Point,
        requests: Sequence[Request],
        arrivals: ArrivalKind,
        *,
        role: Role,
        pair: int,
        seed: int,
        dropped: bool = False,
        top2: bool = False,
        stop: StopRule | None = None,
        slo: Slo | None = None,
    ) -> PlacedBlock:
        """One block.

        Its outcome is ``complete``, ``stopped`` by the rule, or ``invalid`` when the load generator was late.

        Args:
            slo: Whose strictest limit the lateness is compared with; None for the median TTFT.

        Raises:
            TrialFailure: A request failed, a knob was not in force, a prompt was found in the prefix cache, or the
                engine failed. The block is in ``placed`` all the same.
        """
        schedule = arrivals.schedule(requests, [seed])

        def place(
            result: BlockResult,
            retune_s: float,
            outcome: BlockOutcome,
            failure: str | None,
            *,
            slip: DispatchSlip | None = None,
        ) -> PlacedBlock:
            block = MeasuredBlock(
                role=role,
                pair=pair,
                dropped=dropped or outcome != "complete",
                seed=seed,
                retune_s=retune_s,
                result=result,
                metrics=block_metrics(result.requests, result.duration_s, slo=self._slo, gpus=self._gpus),
                load=json.dumps(arrivals.model_dump(), sort_keys=True),
                slip=slip or dispatch_slip(result.requests, is_closed=schedule.is_closed),
                outcome=outcome,
                failure=failure,
            )
            placed = PlacedBlock(block=block, info=engine.info, point=point)
            self.placed.append(placed)
            return placed

        started_at = datetime.now(UTC)
        try:
            retune_s, result = self.run(engine, point, requests, schedule, top2=top2, stop=stop)
        except EngineError as error:
            if error.partial:
                span = max((one.token_times_s[-1] for one in error.partial if one.token_times_s), default=0.0)
                partial = BlockResult(
                    started_at=started_at,
                    duration_s=max(span, 1e-6),
                    requests=error.partial,
                    in_force=InForce(),
                    counters=Counters(),
                )
                place(partial, 0.0, "failed", f"{error.label}: {error.detail}")
            raise
        if reason := self._failure(point, engine, result):
            label, detail = reason
            place(result, retune_s, "failed", f"{label}: {detail}")
            raise TrialFailure(label, detail, engine.info.log_path, at_baseline=role == "baseline")
        if result.stopped is not None:
            return place(result, retune_s, "stopped", result.stopped)
        slip = dispatch_slip(result.requests, is_closed=schedule.is_closed)
        late = invalid_reason(result.requests, slip, slo_s=slo.strictest_s if slo else None)
        why = late and f"late-load-generator: {late}"
        return place(result, retune_s, "invalid" if late else "complete", why, slip=slip)

    def run(
        self,
        engine: WarmEngine,
        point: Point,
        requests: Sequence[Request],
        schedule: Schedule,
        *,
        top2: bool = False,
        stop: StopRule | None = None,
    ) -> tuple[float, BlockResult]:
        """Retune, then serve; return the seconds of the first and the result of the second. A failed engine is
        discarded."""
        there, live = engine.engine, {name: point[name] for name in self._space.names("live")}
        try:
            if engine.live == live or not isinstance(there, TunedRuns):
                retune_s = self._tune(engine, live)
                return retune_s, there.run(requests, schedule, top2=top2, stop=stop)
            engine.live = None
            both = there.retune_and_run(live, requests, schedule, top2=top2, stop=stop)
            engine.live = live
            return both
        except RejectedError as error:
            raise TrialFailure("rejected", str(error), engine.info.log_path) from error
        except EngineError:
            self._pool.discard(engine)
            raise

    def require_valid(self, point: Point, engine: WarmEngine, result: BlockResult) -> None:
        """Raise TrialFailure when a block at the baseline says nothing."""
        if reason := self._failure(point, engine, result):
            raise TrialFailure(*reason, engine.info.log_path, at_baseline=True)

    def _tune(self, engine: WarmEngine, live: Point) -> float:
        if engine.live == live:
            return 0.0
        engine.live = None
        try:
            seconds = engine.engine.retune(live)
        except ValueError as error:
            raise TrialFailure("rejected", str(error), engine.info.log_path) from error
        engine.live = live
        return seconds

    def _failure(self, point: Point, engine: WarmEngine, result: BlockResult) -> tuple[str, str] | None:
        """Class and detail of what makes a block worthless."""
        is_cut = result.stopped is not None
        failed = [one for one in result.requests if one.error and not (is_cut and error_class(one) in CANCELLED)]
        if failed:
            return (
                "request-failed",
                f"{len(failed)} of {len(result.requests)} requests failed, the first with: {failed[0].error}",
            )
        if reason := self._cache_hit(result):
            return "prefix-cache-hit", reason
        if reason := not_in_force(self._space, point, self._plugin, engine.info, result):
            return LABEL, reason
        return None

    def _cache_hit(self, result: BlockResult) -> str | None:
        """The cache was emptied before the block: its first request must find nothing, whatever others share."""
        first = min(result.requests, key=lambda one: one.send_s, default=None)
        if first is not None and first.cached_tokens:
            return f"{first.cached_tokens} prompt tokens of the first request came from the prefix cache"
        cached = sum(request.cached_tokens for request in result.requests)
        if cached and not self._wants_hits:
            return f"{cached} prompt tokens came from the prefix cache (blocks.prefix_cache_hits is forbidden)"
        return None


def seed_of(*parts: object) -> int:
    """A seed (63 bits) that names one block, the same on every machine."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
