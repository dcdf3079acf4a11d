"""The largest rate at which a point keeps the SLO, searched for on its warm engine."""

from __future__ import annotations

import dataclasses

from orchestrator.measurement import GOODPUT_AT_SLO, Probe, RatePlan, RateSearch, Role, StopHopeless, as_of_arrival
from orchestrator.search import Point
from orchestrator.sweep.pool import WarmEngine
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.sweep.serving import Serving, TrialFailure, seed_of
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import draw_many

LATE_IN_A_ROW = 3
"""Probes in a row whose load generator may be late."""


class RateBench:
    """Searches for one comparison; the probes of earlier pairs give later ones their bracket."""

    def __init__(self, spec: SweepSpec, serving: Serving) -> None:
        assert spec.slo is not None
        assert spec.rate_search is not None
        section = spec.rate_search
        self._spec, self._serving, self._slo, self._requests = spec, serving, spec.slo, section.requests
        self._plan = RatePlan(
            low=section.low,
            high=section.high,
            probes=section.probes,
            precision=section.precision,
            share=spec.slo.share,
        )
        self._known: dict[Role, list[Probe]] = {"baseline": [], "candidate": []}

    def largest(self, engine: WarmEngine, point: Point, *, role: Role, pair: int, seed: int) -> PlacedBlock:
        """Search once. The block that is returned is the last at the rate found, and has that as its metric; all others
        are marked as dropped.

        Raises:
            TrialFailure: The SLO does not hold at the lowest rate (class ``slo``), or the load generator is late.
        """
        search, late, served = RateSearch(self._plan, known=self._known[role]), 0, 0
        at_rate: dict[float, int] = {}
        while (rate := search.next_rate()) is not None:
            block = self._probe(engine, point, rate, role, pair, seed_of(seed, served)).block
            served += 1
            if block.outcome == "invalid":
                late += 1
                if late == LATE_IN_A_ROW:
                    raise TrialFailure(
                        "late-load-generator", (block.failure or "").partition(": ")[2], engine.info.log_path
                    )
                continue
            late = 0
            if block.outcome == "complete":
                at_rate[rate] = len(self._serving.placed) - 1
            kept = self._slo.kept(as_of_arrival(block.result.requests))
            search.add(Probe(rate=rate, kept=kept, requests=self._requests, stopped=block.outcome == "stopped"))
        result = search.result()
        self._known[role].extend(result.probes)
        if result.rate is None:
            detail = (
                f"fewer than {self._slo.share:.0%} of the requests keep it at {min(p.rate for p in result.probes):g}/s"
            )
            raise TrialFailure("slo", detail, engine.info.log_path, at_baseline=role == "baseline")
        # A search makes a probe of its own at the rate that it reports.
        return self._choose(at_rate[result.rate], result.rate)

    def _probe(self, engine: WarmEngine, point: Point, rate: float, role: Role, pair: int, seed: int) -> PlacedBlock:
        requests = draw_many(
            self._spec.block_workload(point), self._requests, seed=[seed], vocab_size=engine.info.vocab_size
        )
        return self._serving.serve(
            engine,
            point,
            requests,
            self._spec.block_load(point).model_copy(update={"rate": rate}),
            role=role,
            pair=pair,
            seed=seed,
            dropped=True,
            stop=StopHopeless(slo=self._slo, requests=self._requests),
            slo=self._slo,
        )

    def _choose(self, index: int, rate: float) -> PlacedBlock:
        """Let one of the blocks count."""
        placed = self._serving.placed[index]
        metrics = {**placed.block.metrics, GOODPUT_AT_SLO: rate}
        block = dataclasses.replace(placed.block, dropped=False, metrics=metrics)
        self._serving.placed[index] = dataclasses.replace(placed, block=block)
        return self._serving.placed[index]
