"""Fault injection: an engine of stated times in a real Ray actor, with a child process to kill, for the kill soak.

It measures nothing. What it answers follows from the point and the prompts alone, so that a study that is killed over
and over has to end with the very numbers of one that was left alone.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.engines import BlockResult, EngineConfig, EngineError, EngineInfo, StopRule
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.records import collect
from orchestrator.workloads import Request, Schedule

CORE = "cat"
"""The engine's child: it has to answer before every block, as vLLM's engine core does."""


class StatedTimesEngine(FaultyEngine):
    """The faulty engine without a fault of its own, whose noise is drawn from the prompts of a block."""

    def __init__(self, engine_id: str) -> None:
        super().__init__(noise=0.005)
        self._engine_id = engine_id
        self._core: subprocess.Popen[bytes] | None = None

    def start(self, config: EngineConfig) -> EngineInfo:
        self._core = subprocess.Popen([CORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return super().start(config)

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        self._ask_core()
        self.blocks = zlib.crc32(b"".join(bytes(str(one.prompt.token_ids), "ascii") for one in requests))
        result = super().run(requests, schedule, top2=top2, stop=stop)
        self._ask_core()
        return result

    def stop(self) -> None:
        super().stop()
        if self._core is not None:
            self._core.kill()
            self._core.wait()

    def _ask_core(self) -> None:
        assert self._core is not None
        assert self._core.stdin is not None
        assert self._core.stdout is not None
        try:
            self._core.stdin.write(b"block\n")
            self._core.stdin.flush()
            answer = self._core.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise EngineError("engine-dead", "the engine's core is gone", lost=True, log_path=f"{self._engine_id}.log")


class StatedTimesActor(EngineActor):
    """The real actor with that engine in it."""

    def start(self, config: EngineConfig) -> EngineInfo:
        with self._heart.during("start"):
            self._engine = StatedTimesEngine(self._engine_id)
            return replace(self._engine.start(config), node=collect(), log_path=self._log_path)
