"""A vLLM engine in a process of its own.

``VllmEngine`` changes the environment of its process and patches vLLM there, which must not reach other tests. In a
child, a test can also count the processes that an engine leaves.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import uuid
from collections.abc import Mapping, Sequence
from multiprocessing.managers import BaseManager
from typing import Any

import psutil

from orchestrator.cluster.custody import Custody
from orchestrator.cluster.reaper import engine_processes
from orchestrator.engines import BlockResult, EngineConfig, EngineInfo, KnobValue, StopRule
from orchestrator.engines.vllm import VllmEngine
from orchestrator.vllm_plugin import WorkerReport
from orchestrator.workloads import Request, Schedule


class InspectedEngine(VllmEngine):
    """Also gives the worker's own report, which says more than the contract does."""

    def worker_report(self) -> WorkerReport:
        workers, _ = self._await(self._reports())
        return workers[0]


class _Manager(BaseManager):
    """Serves one engine. Each thread of the test has a connection of its own, so that one can abort another's block."""


_Manager.register("engine", InspectedEngine)


class ChildEngine:
    """The engine contract, carried to a child process."""

    def __init__(self, log_path: str) -> None:
        self.engine_id = f"test-{uuid.uuid4().hex[:10]}"
        self._manager = _Manager(ctx=multiprocessing.get_context("spawn"))
        self._manager.start(_end_with_parent, (self.engine_id,))
        self._engine: Any = self._manager.engine(self.engine_id, log_path)  # type: ignore[attr-defined]

    def start(self, config: EngineConfig) -> EngineInfo:
        info: EngineInfo = self._engine.start(config)
        return info

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return float(self._engine.retune(live_values))

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        block: BlockResult = self._engine.run(requests, schedule, top2=top2, stop=stop)
        return block

    def stop(self) -> None:
        self._engine.stop()

    def abort(self) -> None:
        self._engine.abort()

    def worker_report(self) -> WorkerReport:
        report: WorkerReport = self._engine.worker_report()
        return report

    def processes(self) -> list[psutil.Process]:
        """Live processes of the engine, without the child itself."""
        return list(engine_processes(self.engine_id))

    def close(self) -> None:
        """End the child and, through its reaper, all that it may have left."""
        self._manager.shutdown()


def _end_with_parent(engine_id: str) -> None:
    """Runs in the child: die with the test's process, and have a reaper remove the engine then."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    Custody(engine_id)
