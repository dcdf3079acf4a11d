"""What removes the ranks of a vLLM over Ray, on every node that has some.

vLLM starts its ranks as Ray actors of its own and ends them by SIGKILL, which leaves files in ``/dev/shm``. The reaper
of the engine is on the engine's node alone, and knows what inherits from the engine's actor. So ranks carry an id of
their own in the environment, and each node has a guard whose reaper goes by it.
"""

from __future__ import annotations

import os
from typing import Any

from orchestrator.cluster import reaper
from orchestrator.cluster.custody import start_reaper
from orchestrator.cluster.groups import nodes_of
from orchestrator.cluster.reaper import ranks_id


def ranks_env(engine_id: str) -> dict[str, str]:
    """The environment of every rank, and of the engine's actor, from which vLLM takes it.

    Ranks join the cluster, and so does vLLM's engine core, a process of its own: without the address Ray would start
    another cluster there. (vLLM sets it only where nobody has told it how to start processes: ``_maybe_force_spawn``.)
    Sockets and temporary files are in a folder that the guards make.
    """
    import ray

    scratch = str(reaper.scratch_folder(ranks_id(engine_id)))
    return {
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "TMPDIR": scratch,
        "VLLM_RPC_BASE_PATH": scratch,
        reaper.ENGINE_ID_ENV: ranks_id(engine_id),
        # Ray renames its workers, which would overwrite the environment that tells whose they are.
        "SPT_NOENV": "1",
    }


class RankGuard:
    """A Ray actor beside the ranks of one node. It ends with the engine's actor, which owns it; when it has, the reaper
    removes the ranks and what they left."""

    def __init__(self, engine_id: str) -> None:
        import ray

        name, node = ranks_id(engine_id), ray.get_runtime_context().get_node_id()
        reaper.scratch_folder(name).mkdir(mode=0o700, exist_ok=True)
        # Raylets of one machine share the folder of leases.
        start_reaper(name, os.getpid(), lease_name=f"{name}-{node[:8]}")

    def ready(self) -> None:
        """Answers once the reaper runs."""


def start_guards(engine_id: str) -> list[Any]:
    """One on each node of this actor's placement group, in a bundle that it takes nothing of; none outside of a group.
    They live as long as somebody holds them."""
    import ray
    from ray.util.placement_group import get_current_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = get_current_placement_group()
    if group is None:
        return []
    firsts: dict[str, int] = {}
    for bundle, node in enumerate(nodes_of(group)):
        firsts.setdefault(node, bundle)
    guards = []
    for bundle in firsts.values():
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        options = {"num_cpus": 0, "num_gpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}
        guards.append(ray.remote(RankGuard).options(**options).remote(engine_id))
    ray.get([guard.ready.remote() for guard in guards])
    return guards
