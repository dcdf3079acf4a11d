"""The Ray actor that holds one engine, and the engine contract as the driver sees it.

Ray is imported inside the functions: it reads its auth mode when it is imported, and ``ray_session`` sets that first.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.cluster.custody import Custody
from orchestrator.cluster.groups import NoRoomError, node_shapes, nodes_of, open_group, remove_group
from orchestrator.cluster.output import redirect_output
from orchestrator.cluster.placement import Parallel, PlacementError, place
from orchestrator.cluster.rank_actor import Ranks, start_ranks
from orchestrator.engines import BlockResult, Engine, EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.engines.kernel_lab import LabError, lab_args
from orchestrator.records import collect
from orchestrator.workloads import Request, Schedule

EngineKind = Literal["vllm", "kernel_lab"]
"""What an actor can hold."""

PLACE_TIMEOUT_S = 60.0
"""How long the actor itself may take to come up, before the engine is started in it; also how long others may take to
make room for its placement group."""

STOP_TIMEOUT_S = 30.0
"""How long an engine may take to stop in good order."""


class EngineActor:
    """Runs in a Ray worker of its own. Everything it and its children print goes to the engine's log file.

    In a placement group it is in the first bundle, and starts the engine's other ranks in the others.
    """

    def __init__(self, engine_id: str, log_path: str, kind: EngineKind) -> None:
        redirect_output(log_path)
        self._custody = Custody(engine_id)
        self._engine_id, self._log_path, self._kind = engine_id, log_path, kind
        # Here, because each takes some seconds to import torch, as this process does next.
        self._ranks = start_ranks(engine_id, log_path)
        self._engine: Engine | None = None

    def pid(self) -> int:
        return os.getpid()

    def start(self, config: EngineConfig) -> EngineInfo:
        self._engine = _engine_of(self._kind, self._engine_id, self._log_path, self._ranks)
        # Read here: in a cluster the driver's machine may have another processor, and other versions.
        return replace(self._engine.start(config), node=collect())

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return self._started.retune(live_values)

    def run(self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None) -> BlockResult:
        return self._started.run(requests, schedule, top2=top2, stop=stop)

    def stop(self) -> None:
        try:
            self._started.stop()
        finally:
            self._custody.release()

    @property
    def _started(self) -> Engine:
        assert self._engine is not None
        return self._engine


class RayEngine:
    """``orchestrator.engines.Engine`` over an actor. An object is one engine: after ``stop`` it cannot be started
    again.

    A kernel lab with decode context parallelism has an actor for each rank, all in one placement group: on one node
    where that has room for them, else on several.

    Args:
        log_dir: Folder for the engine's log, on the node that runs it.
        kind: Which engine.
        cpus: CPU cores that Ray sets aside. Ranks share them evenly.
        gpus: GPUs that Ray sets aside and shows to the engine. Ranks share them evenly.
        start_timeout_s: Longest start of the engine.
        block_timeout_s: Longest single block; past it the engine counts as hung.
        spread: Whether ranks go to as many nodes as there are, though one would hold them.

    Attributes:
        rank_nodes: Ray's id of each rank's node; empty for an engine of one rank.
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
        spread: bool = False,
    ) -> None:
        self.engine_id = f"engine-{uuid.uuid4().hex[:10]}"
        self.log_path = str(log_dir / f"{self.engine_id}.log")
        self._kind, self._cpus, self._gpus = kind, cpus, gpus
        self._start_timeout_s, self._block_timeout_s = start_timeout_s, block_timeout_s
        self._spread = spread
        self._actor: Any = None
        self._group: Any = None
        self.actor_pid: int | None = None
        self.rank_nodes: list[str] = []

    def start(self, config: EngineConfig) -> EngineInfo:
        import ray

        ranks = self._ranks(config)
        try:
            options = {**self._placed(ranks), "runtime_env": {"env_vars": dict(config.env)}}
            self._actor = ray.remote(EngineActor).options(**options).remote(self.engine_id, self.log_path, self._kind)
            self.actor_pid = self._get(self._actor.pid.remote(), PLACE_TIMEOUT_S, "actor-start")
            info: EngineInfo = self._get(self._actor.start.remote(config), self._start_timeout_s, "engine-start")
        except BaseException:
            self.abort()
            raise
        return info

    def _ranks(self, config: EngineConfig) -> int:
        """Ranks of the engine that are actors of their own; vLLM starts its own processes."""
        if self._kind != "kernel_lab":
            return 1
        try:
            return lab_args(config.args).decode_context_parallel_size
        except LabError as error:
            raise EngineError(error.label, error.detail, log_path=self.log_path) from error

    def _placed(self, ranks: int) -> dict[str, Any]:
        """Options of the actor, whose place is found: in a placement group if the engine has several ranks.

        What the cluster can never hold is refused: Ray itself would wait for ever, in the hope of a new node.
        """
        share = {"CPU": self._cpus / ranks, "GPU": self._gpus / ranks}
        options = {"num_cpus": share["CPU"], "num_gpus": share["GPU"], "max_restarts": 0}
        parallel = Parallel(tensor=ranks, decode_context=ranks)
        try:
            if ranks == 1:
                place(parallel, node_shapes(), share)
                return options
            self._group = open_group(parallel, share, spread=self._spread, timeout_s=PLACE_TIMEOUT_S)
        except PlacementError as error:
            detail = f"{error} (resources in the spec)"
            raise EngineError("resources", detail, log_path=self.log_path) from error
        except NoRoomError as error:
            raise EngineError("no-room", str(error), lost=True, log_path=self.log_path) from error
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.rank_nodes = nodes_of(self._group)
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        return {**options, "scheduling_strategy": strategy}

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

        (actor, self._actor), (group, self._group) = (self._actor, None), (self._group, None)
        if actor is not None:
            # Its other ranks are its own actors: Ray ends them with it.
            ray.kill(actor, no_restart=True)
        if group is not None:
            remove_group(group)
        if actor is not None:
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


def _engine_of(kind: EngineKind, engine_id: str, log_path: str, ranks: Ranks) -> Engine:
    """Imports vLLM or torch: only once the output is redirected and the custody has begun."""
    if kind == "vllm":
        from orchestrator.engines.vllm import VllmEngine

        return VllmEngine(engine_id, log_path)
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


def _wait_until_gone(engine_id: str, timeout_s: float = 30.0, poll_s: float = 0.05) -> None:
    """Wait for the engine's processes on this node, if it ran here, so that the next one finds the machine free."""
    from orchestrator.cluster.reaper import engine_processes, lease_folder

    # Those of the ranks that ran here have its id in front of their names.
    leases, deadline = f"{engine_id}*.json", time.monotonic() + timeout_s
    while (any(lease_folder().glob(leases)) or any(engine_processes(engine_id))) and time.monotonic() < deadline:
        time.sleep(poll_s)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
