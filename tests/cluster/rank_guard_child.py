"""Run by test_rank_guard.py: an actor with guards on two raylets, and another in place of a rank of vLLM that leaves
shared memory when it is killed. Prints one JSON object.

Ray keeps state for the life of a process, so that the cluster has one of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from orchestrator.cluster import ray_session
from orchestrator.cluster.rank_guard import ranks_env, start_guards
from orchestrator.cluster.reaper import Lease, is_alive, lease_folder, ranks_id, scratch_folder, start_ticks

ENGINE_ID = f"guard-test-{os.getpid()}"
LEFT_S = 10.0


class Rank:
    """A rank whose shared memory nobody removes."""

    def __init__(self) -> None:
        self.block = SharedMemory(create=True, size=4096)
        resource_tracker.unregister(f"/{self.block.name}", "shared_memory")

    def home(self) -> tuple[int, str, str]:
        return os.getpid(), f"/dev/shm/{self.block.name}", os.environ["TMPDIR"]


class Holder:
    """In place of the engine's actor: it owns the guards, and starts the rank as vLLM does."""

    def __init__(self) -> None:
        self.guards = start_guards(ENGINE_ID)

    def start_rank(self) -> tuple[int, tuple[int, str, str]]:
        import ray
        from ray.util.placement_group import get_current_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(get_current_placement_group(), placement_group_bundle_index=1)
        self.rank = ray.remote(Rank).options(num_gpus=1, scheduling_strategy=strategy).remote()
        return len(self.guards), ray.get(self.rank.home.remote())


def noted_files() -> set[str]:
    """What the guards' reapers know."""
    found: set[str] = set()
    for path in lease_folder().glob(f"{ENGINE_ID}*.json"):
        found.update(Lease.read(path).shared_files)
    return found


def main() -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=arguments)
    cluster.add_node(num_cpus=1, num_gpus=1)
    told: dict[str, Any] = {}
    try:
        with ray_session(cluster.address):
            import ray
            from ray.util.placement_group import placement_group
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = placement_group([{"CPU": 1, "GPU": 1}] * 2, strategy="STRICT_SPREAD")
            assert group.wait(60)
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
            environment = {"env_vars": ranks_env(ENGINE_ID)}
            options = {"num_cpus": 1, "scheduling_strategy": strategy, "runtime_env": environment}
            holder = ray.remote(Holder).options(**options).remote()
            told["guards"], (pid, shared, scratch) = ray.get(holder.start_rank.remote())
            begun = start_ticks(pid) or 0
            told["scratch_is_there"] = scratch == str(scratch_folder(ranks_id(ENGINE_ID))) and Path(scratch).is_dir()
            told["leases"] = len(list(lease_folder().glob(f"{ENGINE_ID}*.json")))
            end = time.monotonic() + LEFT_S
            while shared not in noted_files():
                assert time.monotonic() < end, "no reaper has seen the rank's shared memory"
                time.sleep(0.05)
            ray.kill(holder)

            def left() -> list[str]:
                paths = [Path(shared), Path(scratch), *lease_folder().glob(f"{ENGINE_ID}*")]
                return [*(str(path) for path in paths if path.exists()), *([str(pid)] if is_alive(pid, begun) else [])]

            end = time.monotonic() + LEFT_S
            while left() and time.monotonic() < end:
                time.sleep(0.05)
            told["left"] = left()
    finally:
        cluster.shutdown()
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()) + "\n")
