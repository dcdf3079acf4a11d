"""An engine that only sleeps, in a real Ray actor: the load of the overhead benchmark, and no result of anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.cluster import RayEngine
from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.engines import BlockResult, EngineConfig, EngineInfo, StopRule
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.records import collect
from orchestrator.workloads import Request, Schedule

SECONDS_ENV = "OVERHEAD_BLOCK_S"
"""Environment variable of the engine: how long a block sleeps."""


class SleepingEngine(FaultyEngine):
    """Makes its timelines up, as ``FaultyEngine`` does, and sleeps the given time over each block but the first, which
    warms the engine up and counts for nothing."""

    def __init__(self, engine_id: str, block_s: float) -> None:
        super().__init__()
        self._engine_id, self._block_s = engine_id, block_s

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        started_at, begin = datetime.now(UTC), time.perf_counter()
        made_up = super().run(requests, schedule, top2=top2, stop=stop)
        if self.blocks > 1:
            time.sleep(max(self._block_s - (time.perf_counter() - begin), 0.0))
        return replace(made_up, started_at=started_at, duration_s=time.perf_counter() - begin)


class SleepingActor(EngineActor):
    """Holds a sleeping engine in place of a real one."""

    def start(self, config: EngineConfig) -> EngineInfo:
        self._engine = SleepingEngine(self._engine_id, float(config.env[SECONDS_ENV]))
        return replace(self._engine.start(config), node=collect(), start_s=0.0)


class RaySleeper(RayEngine):
    """The engine of the sweep: Chunksmith's own, but for what its actor holds."""

    actor_class = SleepingActor


def spec(trials: int, trial_s: float, cpus: float) -> dict[str, Any]:
    """A sweep of trials that take so long: a pair of blocks each, drawn at random; nothing is confirmed or soaked."""
    return {
        "version": 1,
        "study": "overhead",
        "model": "org/model",
        "engine": {
            "args": {"max_model_len": 8192, "max_num_batched_tokens": 256, "max_num_seqs": 4},
            "env": {SECONDS_ENV: str(trial_s / 2)},
        },
        "space": {
            "mla_workspace_rows": {"scope": "live", "low": 128, "high": 128 + 16 * (trials // 16 + 1), "step": 16},
            "max_num_batched_tokens": {"scope": "live", "low": 128, "high": 256, "step": 8},
        },
        "sampler": {"kind": "random"},
        "workload": {"prompts": 1, "input_len": 1024, "output_len": 1},
        "trials": trials,
        "blocks": {"warmup": 0, "min_pairs": 1, "max_pairs": 1},
        "confirm": {"points": 0},
        "accuracy": {"input_len": 1024},
        "soak": {"rounds": 0},
        "resources": {"cpus": cpus},
    }
