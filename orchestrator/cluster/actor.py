"""The engine contract as the driver sees it: an engine in a Ray actor, wherever in the cluster that is.

Ray is imported inside the functions: it reads its auth mode when it is imported, and ``ray_session`` sets that first.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.cluster.engine_actor import EngineActor, EngineKind, Home
from orchestrator.cluster.explain import HANG, explained
from orchestrator.cluster.groups import (
    NoRoomError,
    avoidable,
    is_waiting,
    node_shapes,
    nodes_of,
    open_group,
    remove_group,
)
from orchestrator.cluster.nodes import NodeWatch, elsewhere
from orchestrator.cluster.placement import Parallel, PlacementError, place
from orchestrator.cluster.remote_log import tail_of
from orchestrator.cluster.timeouts import Timeouts
from orchestrator.engines import BlockResult, EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.engines.kernel_lab import LabError, lab_args
from orchestrator.workloads import Request, Schedule

RETUNE_TIMEOUT_S = 60.0


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
        timeouts: How long what may take.
        nodes: Learns which nodes lose engines, and tells which to leave alone.
        spread: Whether ranks go to as many nodes as there are, though one would hold them.

    Attributes:
        rank_nodes: Ray's id of each rank's node, once the engine has its place.
        actor_class: What the actor is; another one only where an engine stands for a load.
    """

    actor_class: ClassVar[type[EngineActor]] = EngineActor

    def __init__(
        self,
        log_dir: Path,
        *,
        kind: EngineKind = "vllm",
        cpus: float = 1.0,
        gpus: float = 0.0,
        timeouts: Timeouts | None = None,
        nodes: NodeWatch | None = None,
        spread: bool = False,
    ) -> None:
        self.engine_id = f"engine-{uuid.uuid4().hex[:10]}"
        self.log_path = str(log_dir / f"{self.engine_id}.log")
        self._kind, self._cpus, self._gpus = kind, cpus, gpus
        self._timeouts, self._nodes, self._spread = timeouts or Timeouts(), nodes or NodeWatch(), spread
        self._actor: Any = None
        self._group: Any = None
        self._home: Home | None = None
        self.rank_nodes: list[str] = []

    def start(self, config: EngineConfig) -> EngineInfo:
        import ray

        ranks = self._ranks(config)
        try:
            options = {**self._placed(ranks), "runtime_env": {"env_vars": dict(config.env)}}
            given = (self.engine_id, self.log_path, self._kind, self._timeouts.silence_s)
            self._actor = ray.remote(self.actor_class).options(**options).remote(*given)
            self._home = Home(*self._get(self._actor.home.remote(), self._timeouts.place_s, "actor-start"))
            self.rank_nodes = self.rank_nodes or [self._home.node_id]
            info: EngineInfo = self._get(self._actor.start.remote(config), self._timeouts.start_s, "engine-start")
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
        aside = self._nodes.aside()
        try:
            if ranks == 1:
                place(parallel, node_shapes(), share)
                return {**options, "label_selector": elsewhere(avoidable(aside, parallel, share))}
            self._group = open_group(
                parallel, share, spread=self._spread, timeout_s=self._timeouts.place_s, aside=aside
            )
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
        return float(self._get(self._actor.retune.remote(dict(live_values)), RETUNE_TIMEOUT_S, "retune"))

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        result: BlockResult = self._get(
            self._actor.run.remote(list(requests), schedule, top2, stop), self._timeouts.block_s, "block"
        )
        self._nodes.served(self.rank_nodes)
        return result

    def stop(self) -> None:
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        if self._actor is None:
            return
        import ray

        # Dead or hung: what is left of it is the reaper's, once the actor is gone.
        with contextlib.suppress(RayActorError, GetTimeoutError, RayTaskError):
            ray.get(self._actor.stop.remote(), timeout=self._timeouts.stop_s)
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
        """What an actor's call gives, once it does.

        Raises:
            EngineError: With the class that the engine's log gives.
            ValueError: The actor's own, but not at a start.
        """
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(reference, timeout=timeout_s)
        except RayError as error:
            failure = self._translated(error, timeout_s, phase)
            if isinstance(failure, EngineError):
                failure = self._explained(failure, error, phase)
                if failure.lost:
                    self._nodes.lost(self.rank_nodes, failure.label)
            raise failure from error

    def _translated(self, error: Exception, timeout_s: float, phase: str) -> EngineError | ValueError:
        """What Ray says, as the contract's own errors."""
        from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayTaskError

        def lost(label: str, detail: str) -> EngineError:
            return EngineError(label, detail, lost=True, log_path=self.log_path)

        if isinstance(error, GetTimeoutError):
            if phase == "actor-start" and self._actor is not None and is_waiting(self._actor):
                return lost("no-room", f"others hold the cluster: no room for the engine within {timeout_s:.0f} s")
            return lost(HANG, f"no answer for {timeout_s:.0f} s in phase {phase}")
        if isinstance(error, OutOfMemoryError):
            return lost("ray-host-oom", "Ray's memory monitor killed the engine")
        if isinstance(error, RayActorError):
            return lost("ray-actor-died", _first_line(error))
        if not isinstance(error, RayTaskError):
            # The actor's environment, its placement or its node: the next start may be luckier, and tries are counted.
            return lost("ray", f"{type(error).__name__}: {_first_line(error)}")
        cause = getattr(error, "cause", error)
        if isinstance(cause, EngineError) or (isinstance(cause, ValueError) and phase != "engine-start"):
            return cause
        label = "engine-start" if phase == "engine-start" else "engine-error"
        return EngineError(label, f"{type(cause).__name__}: {_first_line(cause)}", log_path=self.log_path)

    def _explained(self, failure: EngineError, error: Exception, phase: str) -> EngineError:
        from ray.exceptions import GetTimeoutError, RayTaskError

        log = tail_of(self.log_path, self._home.node_id if self._home else None)
        # What the actor raised is in the detail, and a time-out has no cause to tell.
        is_told = isinstance(error, (RayTaskError, GetTimeoutError))
        said = failure.detail if is_told else f"{type(error).__name__}: {error}"
        return explained(failure, log, is_start=phase in ("actor-start", "engine-start"), exception=said)


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
