"""The engine contract as the driver sees it: an engine in a Ray actor, wherever in the cluster that is.

Ray is imported inside the functions: it reads its auth mode when it is imported, and ``ray_session`` sets that first.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.cluster.engine_actor import EngineActor, EngineKind, Home
from orchestrator.cluster.explain import HANG, explained
from orchestrator.cluster.groups import (
    NoRoomError,
    avoidable,
    is_waiting,
    nodes_of,
    open_group,
    remove_group,
    wait_for_nodes,
)
from orchestrator.cluster.leaving import leave, wait_for_leaving, wait_until_gone
from orchestrator.cluster.node_facts import own_facts
from orchestrator.cluster.nodes import NodeWatch, elsewhere
from orchestrator.cluster.placement import Parallel, PlacementError
from orchestrator.cluster.rank_guard import ranks_env
from orchestrator.cluster.remote_log import tail_of
from orchestrator.cluster.room import ranks_of
from orchestrator.cluster.timeouts import Timeouts
from orchestrator.cluster.vllm_ranks import is_over_ray, require_gpus
from orchestrator.engines import BlockResult, EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.engines.kernel_lab import LabError
from orchestrator.workloads import Request, Schedule

RETUNE_TIMEOUT_S = 60.0


class RayEngine:
    """``orchestrator.engines.Engine`` over an actor, and ``TunedRuns``. An object is one engine: after ``stop`` it
    cannot be started again.

    A kernel lab with decode context parallelism has an actor for each rank, all in one placement group: on one node
    where that has room for them, else on several. So have the ranks of a vLLM over Ray, which starts them itself.

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
        over_ray, parallel = self._parallel(config)
        wait_for_leaving()
        try:
            options = self._placed(parallel, over_ray=over_ray)
            if env := {**(ranks_env(self.engine_id) if over_ray else {}), **config.env}:
                # Only then: it takes a new process, where Ray may have one that waits for work.
                options["runtime_env"] = {"env_vars": env}
            given = (self.engine_id, self.log_path, self._kind, self._timeouts.silence_s)
            # What Ray would note of every call costs each about a millisecond, and the records say more.
            options["enable_task_events"] = False
            self._actor = _of_ray(self.actor_class).options(**options).remote(*given)
            self._home = Home(*self._get(self._present().home.remote(), self._timeouts.place_s, "actor-start"))
            self.rank_nodes = self.rank_nodes or [self._home.node_id]
            info: EngineInfo = self._get(self._present().start.remote(config), self._timeouts.start_s, "engine-start")
            info = replace(info, node=self._facts())
        except BaseException:
            self.abort()
            raise
        return info

    def _facts(self) -> Mapping[str, Any]:
        """What there is on the engine's node. In a cluster the driver's machine may have another processor, and other
        versions; on its own node, with the same Python, they are the driver's."""
        assert self._home is not None
        if self._home[1:] == Home.here()[1:]:
            return own_facts()
        facts: Mapping[str, Any] = self._get(self._present().facts.remote(), self._timeouts.start_s, "engine-start")
        return facts

    def _parallel(self, config: EngineConfig) -> tuple[bool, Parallel]:
        """Whether vLLM starts the ranks of the engine with Ray, and those that Ray places."""
        over_ray = is_over_ray(self._kind, config)
        try:
            parallel = ranks_of(self._kind, config)
            if over_ray:
                require_gpus(parallel, self._gpus)
        except LabError as error:
            raise EngineError(error.label, error.detail, log_path=self.log_path) from error
        except PlacementError as error:
            raise EngineError("resources", str(error), log_path=self.log_path) from error
        return over_ray, parallel

    def _placed(self, parallel: Parallel, *, over_ray: bool = False) -> dict[str, Any]:
        """Options of the actor, whose place is found: in a placement group if the engine has several ranks, or vLLM is
        to start them there.

        What the cluster can never hold is refused: Ray itself would wait for ever, in the hope of a new node. What it
        could hold before, and cannot now, has no room: its nodes may come back.
        """
        ranks = parallel.ranks
        share = {"CPU": self._cpus / ranks, "GPU": self._gpus / ranks}
        options = {"num_cpus": share["CPU"], "num_gpus": 0.0 if over_ray else share["GPU"], "max_restarts": 0}
        aside = self._nodes.aside()
        try:
            limits = self._timeouts
            wait_for_nodes(
                parallel,
                share,
                self._nodes,
                spread=self._spread,
                timeout_s=limits.place_s,
                growth_s=limits.growth_s,
            )
            if ranks == 1 and not over_ray:
                return {**options, "label_selector": elsewhere(avoidable(aside, parallel, share))}
            self._group = open_group(
                parallel, share, spread=self._spread, timeout_s=self._timeouts.place_s, aside=aside
            )
        except PlacementError as error:
            if self._nodes.could_hold(parallel, share, spread=self._spread):
                detail = f"nodes are gone that were there before: {error}"
                raise EngineError("no-room", detail, lost=True, log_path=self.log_path) from error
            detail = f"{error} (resources in the spec)"
            raise EngineError("resources", detail, log_path=self.log_path) from error
        except NoRoomError as error:
            raise EngineError("no-room", str(error), lost=True, log_path=self.log_path) from error
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.rank_nodes = nodes_of(self._group)
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        return {**options, "scheduling_strategy": strategy}

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        return float(self._get(self._present().retune.remote(dict(live_values)), RETUNE_TIMEOUT_S, "retune"))

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        result: BlockResult = self._get(
            self._present().run.remote(list(requests), schedule, top2, stop), self._timeouts.block_s, "block"
        )
        self._nodes.served(self.rank_nodes)
        return result

    def retune_and_run(
        self,
        live_values: Mapping[str, KnobValue],
        requests: Sequence[Request],
        schedule: Schedule,
        *,
        top2: bool = False,
        stop: StopRule | None = None,
    ) -> tuple[float, BlockResult]:
        both = self._present().retune_and_run.remote(dict(live_values), list(requests), schedule, top2, stop)
        ended: tuple[float, BlockResult] = self._get(both, RETUNE_TIMEOUT_S + self._timeouts.block_s, "retune or block")
        self._nodes.served(self.rank_nodes)
        return ended

    def stop(self) -> None:
        actor = self._actor
        if actor is None:
            return
        import ray
        from ray.exceptions import RayError

        try:
            # Dead, hung or killed for its memory: what is left of it is the reaper's, once the actor is gone.
            with contextlib.suppress(RayError):
                ray.get(actor.stop.remote(), timeout=self._timeouts.stop_s)
        finally:
            # Its reaper does the rest; the next engine that starts waits for that.
            leave(self.engine_id)
            self._kill()

    def abort(self) -> None:
        if self._kill():
            wait_until_gone(self.engine_id)

    def _kill(self) -> bool:
        """End the actor, and give its place back. Whether there was one."""
        import ray

        (actor, self._actor), (group, self._group) = (self._actor, None), (self._group, None)
        if actor is not None:
            # Its other ranks are its own actors: Ray ends them with it.
            ray.kill(actor, no_restart=True)
        if group is not None:
            remove_group(group)
        return actor is not None

    def _present(self) -> Any:
        """The actor. Raises EngineError where ``abort`` has ended it meanwhile, which another thread may do."""
        actor = self._actor
        if actor is None:
            raise EngineError("ray-actor-died", "the sweep has ended this engine", lost=True, log_path=self.log_path)
        return actor

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
                # What was aborted meanwhile died of that, and not of its node.
                if failure.lost and self._actor is not None:
                    self._nodes.lost(self.rank_nodes, failure.label)
            raise failure from error

    def _translated(self, error: Exception, timeout_s: float, phase: str) -> EngineError | ValueError:
        """What Ray says, as the contract's own errors."""
        from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayTaskError

        def lost(label: str, detail: str) -> EngineError:
            return EngineError(label, detail, lost=True, log_path=self.log_path)

        if isinstance(error, GetTimeoutError):
            if phase == "actor-start" and (actor := self._actor) is not None and is_waiting(actor):
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


_classes: dict[type[EngineActor], Any] = {}


def _of_ray(actor_class: type[EngineActor]) -> Any:
    """A class as Ray has it, the same for all actors: each new one would be carried to the cluster anew."""
    import ray

    if actor_class not in _classes:
        _classes[actor_class] = ray.remote(actor_class)
    return _classes[actor_class]


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
