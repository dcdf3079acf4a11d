"""The Ray actor that holds one engine.

Ray is imported inside the functions, as in ``actor``. So is what one actor in many needs: each is a process of its own,
and what is imported here, all of them import when a sweep begins.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from orchestrator.cluster.block_kind import block_kind
from orchestrator.cluster.custody import Custody
from orchestrator.cluster.heartbeat import Heartbeat
from orchestrator.cluster.output import redirect_output
from orchestrator.cluster.rank_actor import NO_RANKS, Ranks, is_on_one_node, start_ranks
from orchestrator.cluster.rank_guard import start_guards
from orchestrator.cluster.reaper import beat_path
from orchestrator.engines import (
    PROGRESS,
    BlockResult,
    Engine,
    EngineConfig,
    EngineInfo,
    KnobValue,
    RejectedError,
    StopRule,
)
from orchestrator.engines.kernel_lab import LabError
from orchestrator.workloads import Request, Schedule

EngineKind = Literal["vllm", "vllm_serve", "kernel_lab"]
"""What an actor can hold."""


class Home(NamedTuple):
    """Where an engine's actor runs: its process, Ray's id of its node, and the Python installation."""

    pid: int
    node_id: str
    python: str

    @classmethod
    def here(cls) -> Home:
        """That of this process."""
        import ray

        return cls(os.getpid(), ray.get_runtime_context().get_node_id(), sys.prefix)


class EngineActor:
    """Runs in a Ray worker of its own. Everything it and its children print goes to the engine's log file.

    In a placement group it is in the first bundle, and starts the engine's other ranks in the others. A heartbeat tells
    the engine's reaper what goes on; see ``watchdog``.
    """

    def __init__(self, engine_id: str, log_path: str, kind: EngineKind, silence_s: float) -> None:
        redirect_output(log_path)
        # Else it takes the interpreter seconds to end torch and vLLM, for which the reaper would wait.
        atexit.register(leave_at_once)
        self._custody = Custody(engine_id, log_path=log_path, silence_s=silence_s)
        self._engine_id, self._log_path, self._kind = engine_id, log_path, kind
        # Here, because each takes some seconds to import torch, as this process does next. vLLM starts its own.
        self._ranks = start_ranks(engine_id, log_path) if kind == "kernel_lab" else NO_RANKS
        self._guards = start_guards(engine_id) if kind == "vllm" else []
        is_alone = not self._ranks.actors and is_on_one_node()
        self._heart = Heartbeat(beat_path(engine_id), PROGRESS, is_alone=is_alone, each=self._custody.renew)
        self._engine: Engine | None = None
        self._live: Mapping[str, KnobValue] = {}

    def home(self) -> Home:
        return Home.here()

    def facts(self) -> dict[str, Any]:
        """Versions and hardware of the node; see ``orchestrator.records.collect``."""
        from orchestrator.records import collect

        return collect()

    def start(self, config: EngineConfig) -> EngineInfo:
        with self._heart.during("start"):
            self._engine = self._made(config)
            return self._engine.start(config)

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        with self._heart.during("retune"):
            took_s = self._started.retune(live_values)
        self._live = live_values
        return took_s

    def run(self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None) -> BlockResult:
        with self._heart.during("block", block_kind(self._live, requests, schedule, top2=top2)):
            return self._started.run(requests, schedule, top2=top2, stop=stop)

    def retune_and_run(
        self,
        live_values: Mapping[str, KnobValue],
        requests: Sequence[Request],
        schedule: Schedule,
        top2: bool,
        stop: StopRule | None,
    ) -> tuple[float, BlockResult]:
        """See ``TunedRuns``."""
        try:
            took_s = self.retune(live_values)
        except ValueError as error:
            raise RejectedError(str(error)) from error
        return took_s, self.run(requests, schedule, top2, stop)

    def stop(self) -> None:
        with self._heart.during("stop"):
            try:
                self._started.stop()
            finally:
                self._custody.release()

    def _made(self, config: EngineConfig) -> Engine:
        """The engine that is started. Imports vLLM or torch: only once the output is redirected and the custody has
        begun."""
        return _engine_of(self._kind, self._engine_id, self._log_path, self._ranks)

    @property
    def _started(self) -> Engine:
        assert self._engine is not None
        return self._engine


def leave_at_once() -> None:
    """End this process at once. What was printed is in the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _engine_of(kind: EngineKind, engine_id: str, log_path: str, ranks: Ranks) -> Engine:
    if kind == "vllm":
        from orchestrator.engines.vllm import VllmEngine

        return VllmEngine(engine_id, log_path)
    if kind == "vllm_serve":
        from orchestrator.engines.serve import ServeEngine

        return ServeEngine(engine_id, log_path)
    from orchestrator.engines.kernel_lab.engine import KernelLabEngine

    if not ranks.actors:
        return KernelLabEngine(engine_id, log_path)
    from orchestrator.cluster.lab_ranks import RayPeers
    from orchestrator.engines.kernel_lab.failures import engine_error

    peers = RayPeers(ranks)
    try:
        peers.wait_until_up()
    except LabError as error:
        raise engine_error(error, "engine-start", log_path) from error
    return KernelLabEngine(engine_id, log_path, make_peers=peers.join)
