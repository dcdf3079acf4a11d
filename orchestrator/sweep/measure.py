"""Measure one point against the baseline on warm engines: retune, serve, and check what was really in force."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from orchestrator.engines import BlockResult, EngineError, EngineInfo
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import (
    MeasuredBlock,
    PairedMeasurement,
    PairPlan,
    Role,
    block_metrics,
    measure_pairs,
)
from orchestrator.measurement.stats import PooledNoise
from orchestrator.search import Point
from orchestrator.sweep.knob_check import LABEL, no_effect, not_in_force
from orchestrator.sweep.pool import EnginePool, WarmEngine
from orchestrator.sweep.rows import Phase, PlacedBlock
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import Load, Prompt, Workload, make_prompts


class TrialFailure(ChunksmithError):
    """A measurement that must not become a number.

    Attributes:
        label: Failure class.
        lost: The engine was lost; a fresh one may well do better.
        at_baseline: It was the baseline that failed, not the point.
        attempt: Attempts that were made before the one that failed.
    """

    def __init__(
        self, label: str, detail: str, log_path: str | None = None, *, lost: bool = False, at_baseline: bool = False
    ) -> None:
        super().__init__(f"{label}: {detail}" + (f" (engine log: {log_path})" if log_path else ""))
        self.label, self.detail, self.log_path = label, detail, log_path
        self.lost, self.at_baseline, self.attempt = lost, at_baseline, 0


class Bench:
    """Runs blocks on the pool's engines for one study.

    Args:
        on_start: Called with an engine that has started and run its first, dropped block, and that block's seconds.
    """

    def __init__(self, spec: SweepSpec, pool: EnginePool, on_start: Callable[[WarmEngine, float], None]) -> None:
        self._spec, self._pool, self._on_start = spec, pool, on_start
        self._space = spec.search_space()
        self._baseline = spec.baseline_point()
        self._baseline_group = self.group_of(self._baseline)
        self._reference: dict[str, PlacedBlock] = {}

    def group_of(self, point: Point) -> Point:
        """The engine-scope part of a point."""
        return {name: point[name] for name in self._space.names("engine")}

    def compare(
        self,
        trial: int,
        phase: Phase,
        point: Point,
        plan: PairPlan,
        *,
        noise: PooledNoise | None = None,
        best_ratio: float | None = None,
    ) -> tuple[PairedMeasurement, list[PlacedBlock]]:
        """Pairs of blocks at the point and at the baseline, by the plan. Raises TrialFailure and EngineError."""
        objective = self._spec.objective
        placed: list[PlacedBlock] = []

        def run(role: Role, pair: int, dropped: bool) -> MeasuredBlock:
            seed = _seed(self._spec.seed, phase, trial, "dropped" if dropped else pair)
            placed.append(self._block(role, pair, dropped, point, seed))
            value = placed[-1].block.metrics[objective.metric]
            if value is None or not value > 0:
                detail = f"{objective.metric} of a block is {value}, and a ratio needs a number above 0"
                raise TrialFailure("no-metric", detail, placed[-1].info.log_path)
            self._require_effect(placed)
            return placed[-1].block

        # First, so that a group whose engine cannot start costs no block at the baseline.
        self._engine(self.group_of(point))
        measurement = measure_pairs(
            run, plan, metric=objective.metric, direction=objective.direction, noise=noise, best_ratio=best_ratio
        )
        return measurement, placed

    def greedy(self, point: Point) -> list[PlacedBlock]:
        """Greedy tokens of the fixed prompts, at the baseline and at the point. The baseline's are kept for an
        engine's life."""
        workload = self._spec.accuracy_workload()
        seed = _seed(self._spec.seed, "accuracy")
        engine = self._engine(self._baseline_group)
        engine_id = engine.info.engine_id
        if engine_id not in self._reference:
            self._reference[engine_id] = self._serve(
                "baseline", 0, False, self._baseline, engine, workload, seed, top2=True
            )
        candidate = self._serve(
            "candidate", 0, False, point, self._engine(self.group_of(point)), workload, seed, top2=True
        )
        return [self._reference[engine_id], candidate]

    def _block(self, role: Role, pair: int, dropped: bool, point: Point, seed: int) -> PlacedBlock:
        wanted = self._baseline if role == "baseline" else point
        engine = self._engine(self.group_of(wanted))
        return self._serve(role, pair, dropped, wanted, engine, self._spec.block_workload(), seed)

    def _serve(
        self,
        role: Role,
        pair: int,
        dropped: bool,
        point: Point,
        engine: WarmEngine,
        workload: Workload,
        seed: int,
        *,
        top2: bool = False,
    ) -> PlacedBlock:
        prompts = make_prompts(workload, seed=[seed], vocab_size=engine.info.vocab_size)
        retune_s, result = self._run(engine, point, prompts, self._spec.block_load(), top2=top2)
        self._require_valid(role, point, engine, result)
        block = MeasuredBlock(
            role=role,
            pair=pair,
            dropped=dropped,
            seed=seed,
            retune_s=retune_s,
            result=result,
            metrics=block_metrics(result.requests, result.duration_s),
        )
        return PlacedBlock(block=block, info=engine.info, point=point)

    def _run(
        self, engine: WarmEngine, point: Point, prompts: Sequence[Prompt], load: Load, *, top2: bool = False
    ) -> tuple[float, BlockResult]:
        """Retune, then serve; return the seconds of the first and the result of the second."""
        try:
            retune_s = self._tune(engine, point)
            return retune_s, engine.engine.run(prompts, load, top2=top2)
        except EngineError:
            self._pool.discard(engine)
            raise

    def _tune(self, engine: WarmEngine, point: Point) -> float:
        live = {name: point[name] for name in self._space.names("live")}
        if engine.live == live:
            return 0.0
        engine.live = None
        try:
            seconds = engine.engine.retune(live)
        except ValueError as error:
            raise TrialFailure("rejected", str(error), engine.info.log_path) from error
        engine.live = live
        return seconds

    def _require_valid(self, role: Role, point: Point, engine: WarmEngine, result: BlockResult) -> None:
        def failure(label: str, detail: str) -> TrialFailure:
            return TrialFailure(label, detail, engine.info.log_path, at_baseline=role == "baseline")

        failed = [request for request in result.requests if request.error is not None]
        if failed:
            detail = f"{len(failed)} of {len(result.requests)} requests failed, the first with: {failed[0].error}"
            raise failure("request-failed", detail)
        if cached := sum(request.cached_tokens for request in result.requests):
            raise failure("prefix-cache-hit", f"{cached} prompt tokens came from the prefix cache")
        if reason := not_in_force(self._space, point, self._spec.engine.plugin, engine.info, result):
            raise failure(LABEL, reason)

    def _require_effect(self, placed: Sequence[PlacedBlock]) -> None:
        """Once both blocks of a pair are there, the candidate's must differ from the baseline's in more than time."""
        pair = placed[-1].block.pair
        by_role = {one.block.role: one for one in placed if one.block.pair == pair and not one.block.dropped}
        if len(by_role) == 2 and (reason := no_effect(self._space, by_role["candidate"], by_role["baseline"])):
            raise TrialFailure(LABEL, reason, by_role["candidate"].info.log_path)

    def _engine(self, group: Point) -> WarmEngine:
        """A warm engine of a group. A fresh one serves one block at the baseline first, which nobody counts."""
        engine = self._pool.get(group)
        if not engine.is_warm:
            begin, point = time.perf_counter(), {**self._baseline, **group}
            _, result = self._run(engine, point, self._warm_up_prompts(engine.info), Load(concurrency=1))
            if not engine.is_known:
                self._on_start(engine, time.perf_counter() - begin)
                engine.is_known = True
            self._require_valid("baseline", point, engine, result)
            engine.is_warm = True
        return engine

    def _warm_up_prompts(self, info: EngineInfo) -> Sequence[Prompt]:
        """One prompt of two scheduler steps, if blocks have as much: the second goes through the context path, and
        what comes after is the same again."""
        workload = self._spec.block_workload()
        budget = info.in_force.max_num_batched_tokens or workload.input_len
        length = min(workload.input_len, 2 * budget)
        one = Workload(prompts=1, input_len=length, output_len=workload.output_len)
        return make_prompts(one, seed=[_seed(self._spec.seed, "warm-up")], vocab_size=info.vocab_size)


def _seed(*parts: object) -> int:
    """A seed (63 bits) that names one block, the same on every machine."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
