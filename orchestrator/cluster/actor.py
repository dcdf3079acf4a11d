"""The Ray actor that holds one engine, and the engine contract as the driver sees it.

Ray is imported inside the functions: it reads its auth mode when it is imported, and ``ray_session`` sets that first.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.cluster.custody import Custody
from orchestrator.cluster.session import cluster_resources
from orchestrator.engines import BlockResult, Engine, EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.records import collect
from orchestrator.workloads import Request, Schedule

EngineKind = Literal["vllm", "kernel_lab"]
"""What an actor can hold."""

PLACE_TIMEOUT_S = 60.0
"""How long the actor itself may take to come up, before the engine is started in it."""

STOP_TIMEOUT_S = 30.0
"""How long an engine may take to stop in good order."""


class EngineActor:
    """Runs in a Ray worker of its own. Everything it and its children print goes to the engine's log file."""

    def __init__(self, engine_id: str, log_path: str, kind: EngineKind) -> None:
        Path(log_path).parent.mkdir(parents=True, exist_ok=True)
        _redirect_output(log_path)
        self._custody = Custody(engine_id)
        self._engine = _engine_of(kind, engine_id, log_path)

    def pid(self) -> int:
        return os.getpid()

    def start(self, config: EngineConfig) -> EngineInfo:
        # Read here: in a cluster the driver's machine may have another processor, and other versions.
        return replace(self._engine.start(config), node=collect())

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return self._engine.retune(live_values)

    def run(self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None) -> BlockResult:
        return self._engine.run(requests, schedule, top2=top2, stop=stop)

    def stop(self) -> None:
        try:
            self._engine.stop()
        finally:
            self._custody.release()


class RayEngine:
    """``orchestrator.engines.Engine`` over an actor. An object is one engine: after ``stop`` it cannot be started
    again.

    Args:
        log_dir: Folder for the engine's log, on the node that runs it.
        kind: Which engine.
        cpus: CPU cores that Ray sets aside.
        gpus: GPUs that Ray sets aside and shows to the engine.
        start_timeout_s: Longest start of the engine.
        block_timeout_s: Longest single block; past it the engine counts as hung.
    """

    def __init__(
        self,
        log_dir: Path,
        *,
        kind: EngineKind = "vllm",
        cpus: float = 1.0,
        gpus: float = 0.0,
        start_timeout_s: float = 1800.0,
        block_timeout_s: float = 1800.0,
    ) -> None:
        self.engine_id = f"engine-{uuid.uuid4().hex[:10]}"
        self.log_path = str(log_dir / f"{self.engine_id}.log")
        self._kind, self._cpus, self._gpus = kind, cpus, gpus
        self._start_timeout_s, self._block_timeout_s = start_timeout_s, block_timeout_s
        self._actor: Any = None
        self.actor_pid: int | None = None

    def start(self, config: EngineConfig) -> EngineInfo:
        import ray

        self._require_resources()
        options = {
            "num_cpus": self._cpus,
            "num_gpus": self._gpus,
            "max_restarts": 0,
            "runtime_env": {"env_vars": dict(config.env)},
        }
        self._actor = ray.remote(EngineActor).options(**options).remote(self.engine_id, self.log_path, self._kind)
        try:
            self.actor_pid = self._get(self._actor.pid.remote(), PLACE_TIMEOUT_S, "actor-start")
            info: EngineInfo = self._get(self._actor.start.remote(config), self._start_timeout_s, "engine-start")
        except BaseException:
            self.abort()
            raise
        return info

    def _require_resources(self) -> None:
        """Refuse what the cluster can never place: Ray itself would wait for ever, in the hope of a new node."""
        has = cluster_resources()
        for name, asked in (("CPU", self._cpus), ("GPU", self._gpus)):
            if asked > has[name]:
                detail = f"an engine asks for {asked:g} {name}s (resources in the spec), the cluster has {has[name]:g}"
                raise EngineError("resources", detail, log_path=self.log_path)

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return float(self._get(self._actor.retune.remote(dict(live_values)), 60.0, "retune"))

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        result: BlockResult = self._get(
            self._actor.run.remote(list(requests), schedule, top2, stop), self._block_timeout_s, "block"
        )
        return result

    def stop(self) -> None:
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        if self._actor is None:
            return
        import ray

        # Dead or hung: what is left of it is the reaper's, once the actor is gone.
        with contextlib.suppress(RayActorError, GetTimeoutError, RayTaskError):
            ray.get(self._actor.stop.remote(), timeout=STOP_TIMEOUT_S)
        self.abort()

    def abort(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        ray.kill(actor, no_restart=True)
        _wait_until_gone(self.engine_id)

    def _get(self, reference: Any, timeout_s: float, phase: str) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError, RayTaskError

        try:
            return ray.get(reference, timeout=timeout_s)
        except GetTimeoutError as error:
            detail = f"no answer for {timeout_s:.0f} s in phase {phase}"
            raise EngineError("hang", detail, lost=True, log_path=self.log_path) from error
        except OutOfMemoryError as error:
            raise EngineError("host-oom", "Ray's memory monitor killed the engine", log_path=self.log_path) from error
        except RayActorError as error:
            raise EngineError("actor-lost", _first_line(error), lost=True, log_path=self.log_path) from error
        except RayTaskError as error:
            raise self._translated(error, phase) from error
        except RayError as error:
            # The actor's environment, its placement or its node: the next start may be luckier, and tries are counted.
            detail = f"{type(error).__name__}: {_first_line(error)}"
            raise EngineError("ray", detail, lost=True, log_path=self.log_path) from error

    def _translated(self, error: Exception, phase: str) -> Exception:
        """What happened in the actor, as the contract's own errors."""
        cause = getattr(error, "cause", error)
        if isinstance(cause, (EngineError, ValueError)) and phase != "engine-start":
            return cause
        if isinstance(cause, EngineError):
            return cause
        label = "engine-start" if phase == "engine-start" else "engine-error"
        return EngineError(label, f"{type(cause).__name__}: {_first_line(cause)}", log_path=self.log_path)


def _engine_of(kind: EngineKind, engine_id: str, log_path: str) -> Engine:
    """Imports vLLM or torch: only once the output is redirected and the custody has begun."""
    if kind == "kernel_lab":
        from orchestrator.engines.kernel_lab.engine import KernelLabEngine

        return KernelLabEngine(engine_id, log_path)
    from orchestrator.engines.vllm import VllmEngine

    return VllmEngine(engine_id, log_path)


def _redirect_output(log_path: str) -> None:
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _wait_until_gone(engine_id: str, timeout_s: float = 30.0, poll_s: float = 0.05) -> None:
    """Wait for the engine's processes on this node, if it ran here, so that the next one finds the machine free."""
    from orchestrator.cluster.reaper import engine_processes, lease_folder

    lease = lease_folder() / f"{engine_id}.json"
    deadline = time.monotonic() + timeout_s
    while (lease.exists() or any(engine_processes(engine_id))) and time.monotonic() < deadline:
        time.sleep(poll_s)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
