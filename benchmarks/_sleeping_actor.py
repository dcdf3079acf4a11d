"""An engine that only sleeps, and the Ray actor that holds it. Imports what an actor of a real engine does, no more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.engines import BlockResult, Engine, EngineConfig, EngineInfo, StopRule
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.workloads import Request, Schedule

MODEL: Final = "sleeping/"
"""Before the seconds of a block, in the name of the model."""


class SleepingEngine(FaultyEngine):
    """Makes its timelines up, as ``FaultyEngine`` does, and sleeps over each block but the first, which warms it up and
    counts for nothing."""

    def __init__(self, engine_id: str) -> None:
        super().__init__()
        self._engine_id, self._block_s = engine_id, 0.0

    def start(self, config: EngineConfig) -> EngineInfo:
        self._block_s = float(config.model.removeprefix(MODEL))
        return replace(super().start(config), start_s=0.0)

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        started_at, begin = datetime.now(UTC), time.perf_counter()
        made_up = super().run(requests, schedule, top2=top2, stop=stop)
        if self.blocks > 1:
            time.sleep(max(self._block_s - (time.perf_counter() - begin), 0.0))
        return replace(made_up, started_at=started_at, duration_s=time.perf_counter() - begin)


class SleepingActor(EngineActor):
    """The real actor, with a sleeping engine in place of a real one."""

    def _made(self, config: EngineConfig) -> Engine:
        return SleepingEngine(self._engine_id)
