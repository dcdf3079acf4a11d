"""Measure one point against the baseline on warm engines, in pairs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from orchestrator.engines import EngineError, EngineInfo
from orchestrator.measurement import GOODPUT_AT_SLO, MeasuredBlock, PairedMeasurement, PairPlan, Role, measure_pairs
from orchestrator.measurement.stats import PooledNoise
from orchestrator.search import Point
from orchestrator.sweep.knob_check import LABEL, no_effect
from orchestrator.sweep.pool import EnginePool, WarmEngine
from orchestrator.sweep.rate import RateBench
from orchestrator.sweep.rows import Phase, PlacedBlock
from orchestrator.sweep.serving import Serving, TrialFailure, seed_of
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import ClosedLoop, Prompt, Request

ONE_AT_A_TIME = ClosedLoop(concurrency=1)

WARM_UP_OUTPUT = 8
"""Most tokens that the warm-up request generates."""

TRIES = 3
"""How often a block is served whose load generator was late."""


class _Starts:
    """Starts the engines of a measurement anew, as often as its plan says.

    Args:
        deployed: What both roles' engines are started with.
    """

    def __init__(self, pool: EnginePool, plan: PairPlan, deployed: Sequence[Point]) -> None:
        self._pool, self._plan, self._deployed = pool, plan, deployed
        self._present: int | None = None

    def begin(self, pair: int, wanted: Point) -> bool:
        """If a pair is the first of its start, replace the engines: both, or the one that is wanted now. Whether it
        was."""
        if (number := self._plan.start_of(pair)) == self._present:
            return False
        self._pool.start_anew([wanted] if self._plan.is_one_at_a_time else self._deployed)
        self._present = number
        return True


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
        """Pairs of blocks at the point and at the baseline, both under the point's workload and load, by the plan.

        Where the plan has several starts, each has engines of its own, which are started with the values that they
        would be deployed with, those of live knobs included.

        Returns:
            The measurement, and every block that was served, those that do not count included.

        Raises:
            TrialFailure: With the blocks up to there.
            BaselineError: The baseline's engine does not start.
        """
        objective, metrics = self._spec.objective, [one.metric for one in self._spec.all_objectives]
        baseline = self._spec.baseline_at(point)
        serving = Serving(self._spec, self._pool)
        rates = RateBench(self._spec, serving) if objective.metric == GOODPUT_AT_SLO else None
        starts = _Starts(self._pool, plan, (self._deployed(baseline), self._deployed(point)))

        def run(role: Role, pair: int, dropped: bool) -> MeasuredBlock:
            wanted = baseline if role == "baseline" else point
            nonlocal rates
            if plan.starts > 1:
                if starts.begin(pair, self._deployed(wanted)) and rates is not None:
                    # What it learned was of the engines before.
                    rates = RateBench(self._spec, serving)
                engine = self._fresh(serving, wanted, role, pair)
            else:
                engine = self.engine(self.group_of(wanted))
            seed = seed_of(self._spec.seed, phase, trial, "dropped" if dropped else pair)
            if rates is None or dropped:
                placed = self._block(serving, engine, wanted, role, pair, seed, dropped)
            else:
                placed = rates.largest(engine, wanted, role=role, pair=pair, seed=seed)
            if dropped:
                return placed.block
            for metric in metrics:
                value = placed.block.metrics[metric]
                if value is None or not value > 0:
                    detail = f"{metric} of a block is {value}, and a ratio needs a number above 0"
                    raise TrialFailure("no-metric", detail, placed.info.log_path)
            self._require_effect(serving.placed)
            return placed.block

        try:
            if self._pool.capacity > 1 and plan.starts == 1:
                # First, so that a group whose engine cannot start costs no block at the baseline.
                self.engine(self.group_of(point))
            measurement = measure_pairs(
                run, plan, metric=objective.metric, direction=objective.direction, noise=noise, best_ratio=best_ratio
            )
        except EngineError as error:
            failure = TrialFailure.of_engine(error)
            failure.placed = serving.placed
            raise failure from error
        except TrialFailure as failure:
            failure.placed = serving.placed
            raise
        return measurement, serving.placed

    def greedy(self, point: Point, *, deployed: bool = False) -> list[PlacedBlock]:
        """Greedy tokens of the fixed prompts, at the baseline and at the point, one request at a time. The baseline's
        are kept for an engine's life. Raises TrialFailure.

        Args:
            deployed: Whether the engines are to be those of ``compare`` with several starts.
        """
        serving = Serving(self._spec, self._pool)
        wanted: dict[Role, Point] = {"baseline": self._baseline, "candidate": point}

        def serve(role: Role) -> PlacedBlock:
            at = wanted[role]
            engine = self._deployed_engine(at) if deployed else self.engine(self.group_of(at))
            if role == "baseline" and engine.info.engine_id in self._reference:
                return self._reference[engine.info.engine_id]
            seed = seed_of(self._spec.seed, "accuracy")
            requests = self._spec.accuracy_workload().draw([seed], vocab_size=engine.info.vocab_size)
            placed = serving.serve(engine, at, requests, ONE_AT_A_TIME, role=role, pair=0, seed=seed, top2=True)
            if role == "baseline":
                self._reference[engine.info.engine_id] = placed
            return placed

        try:
            # First the one that is there: a pool that holds one engine would start it again.
            started_with = self._deployed if deployed else self.group_of
            order = sorted(wanted, key=lambda role: started_with(wanted[role]) not in self._pool.groups)
            placed = {role: serve(role) for role in order}
        except EngineError as error:
            raise TrialFailure.of_engine(error) from error
        return [placed["baseline"], placed["candidate"]]

    def engine(self, group: Point) -> WarmEngine:
        """A warm engine of a group. A fresh one serves one block at the baseline first, which nobody counts."""
        engine = self._pool.get(group)
        if not engine.is_warm:
            self._warm_up(engine, {**self._baseline, **group})
        return engine

    def _deployed(self, point: Point) -> Point:
        """What an engine is started with to be as if the point were deployed. A kernel lab is only ever retuned, and
        without engine-scope knobs one serves both roles."""
        live = [] if self._spec.is_lab else self._space.names("live")
        return {name: point[name] for name in (*self._space.names("engine"), *live)}

    def _deployed_engine(self, point: Point) -> WarmEngine:
        engine = self._pool.get(self._deployed(point))
        if not engine.is_warm:
            self._warm_up(engine, point)
        return engine

    def _fresh(self, serving: Serving, point: Point, role: Role, pair: int) -> WarmEngine:
        """The engine that was started for a role of the present start, warmed up with blocks of that role."""
        engine = self._deployed_engine(point)
        if role not in engine.warmed_roles:
            engine.warmed_roles.add(role)
            for number in range(self._spec.blocks.warmup):
                seed = seed_of(self._spec.seed, "fresh", role, pair, number)
                self._block(serving, engine, point, role, pair, seed, dropped=True)
        return engine

    def _warm_up(self, engine: WarmEngine, point: Point) -> None:
        begin, serving = time.perf_counter(), Serving(self._spec, self._pool)
        requests = self._warm_up_requests(engine.info, point)
        _, result = serving.run(engine, point, requests, ONE_AT_A_TIME.schedule(requests, [0]))
        if not engine.is_known:
            self._on_start(engine, time.perf_counter() - begin)
            engine.is_known = True
        serving.require_valid(point, engine, result)
        engine.is_warm = True

    def _block(
        self,
        serving: Serving,
        engine: WarmEngine,
        point: Point,
        role: Role,
        pair: int,
        seed: int,
        dropped: bool,
    ) -> PlacedBlock:
        """One block of the workload, again with other prompts when the load generator was late."""
        spec = self._spec
        for attempt in range(TRIES):
            own = seed if attempt == 0 else seed_of(seed, attempt)
            requests = spec.block_workload(point).draw([own], vocab_size=engine.info.vocab_size)
            placed = serving.serve(
                engine,
                point,
                requests,
                spec.block_load(point),
                role=role,
                pair=pair,
                seed=own,
                dropped=dropped,
                slo=spec.slo,
            )
            if placed.block.outcome == "complete":
                return placed
        raise TrialFailure("late-load-generator", (placed.block.failure or "").partition(": ")[2], engine.info.log_path)

    def _require_effect(self, placed: Sequence[PlacedBlock]) -> None:
        """Once both blocks of a pair are there, the candidate's must differ from the baseline's in more than time."""
        pair = placed[-1].block.pair
        by_role = {one.block.role: one for one in placed if one.block.pair == pair and not one.block.dropped}
        if len(by_role) == 2 and (reason := no_effect(self._space, by_role["candidate"], by_role["baseline"])):
            raise TrialFailure(LABEL, reason, by_role["candidate"].info.log_path)

    def _warm_up_requests(self, info: EngineInfo, point: Point) -> Sequence[Request]:
        """One prompt of two scheduler steps, if blocks have as much: the second goes through the context path, and
        what comes after is the same again."""
        seed = [seed_of(self._spec.seed, "warm-up")]
        drawn = self._spec.block_workload(point).draw(seed, vocab_size=info.vocab_size)
        longest = max((request.prompt for request in drawn), key=lambda prompt: len(prompt.token_ids))
        budget = info.in_force.max_num_batched_tokens or len(longest.token_ids)
        prompt = Prompt(token_ids=longest.token_ids[: 2 * budget], output_len=min(longest.output_len, WARM_UP_OUTPUT))
        return [dataclasses.replace(drawn[0], prompt=prompt, follows=None, think_s=0.0)]
