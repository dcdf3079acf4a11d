"""Run by test_vllm_over_ray.py: a real vLLM whose two ranks lie on two raylets. Prints one JSON object.

Ray and vLLM keep state for the life of a process, so that each has one of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from orchestrator.cluster import RayEngine, ray_session
from orchestrator.cluster.reaper import lease_folder, ranks_id, scratch_folder, shared_files
from orchestrator.engines import EngineConfig
from orchestrator.workloads import Schedule
from tests.engines.test_vllm import ARGS, ENV, requests

ONE_AT_A_TIME = Schedule(concurrency=1)
LEFT_S = 5.0
STAGES = {"enforce_eager": False, "compilation_config": {"mode": 2, "backend": "eager"}}
"""For a pipeline. On a CPU vLLM warms up only what it traces, and in the warm-up a later stage gets the buffer that it
receives into (``CPUModelRunner.warming_up_model``)."""


def config(**more: Any) -> EngineConfig:
    from orchestrator.models import tiny_model
    from orchestrator.vllm_plugin import PluginSettings

    plugin = PluginSettings(cpu_chunked_prefill=True)
    stages = STAGES if "pipeline_parallel_size" in more else {}
    return EngineConfig(model=str(tiny_model()), args={**ARGS, **stages, **more}, env=ENV, plugin=plugin)


def ranks_running() -> dict[int, int]:
    """Pids of Ray workers that hold a rank of vLLM, and the pid of their raylet."""
    found = {}
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        if "ray::RayWorkerProc" in " ".join(process.info["cmdline"] or []):
            found[process.pid] = process.info["ppid"]
    return found


def over_two_nodes(folder: Path, degree: str) -> dict[str, Any]:
    """The engine over two nodes of one fake GPU each: where it lies, what it serves, and what is left of it."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1, "include_dashboard": False}
    )
    other: Any = cluster.add_node(num_cpus=2, num_gpus=1)
    told: dict[str, Any] = {}
    try:
        with ray_session(cluster.address):
            from ray.util.placement_group import placement_group_table

            engine = RayEngine(folder, cpus=2, gpus=2)
            begin = time.monotonic()
            info = engine.start(config(distributed_executor_backend="ray", **{degree: 2}))
            told["start_s"] = time.monotonic() - begin
            raylets = [node.all_processes["raylet"][0].process.pid for node in (cluster.head_node, other)]
            workers = ranks_running()
            told["raylets_of_ranks"] = sorted(raylets.index(parent) for parent in workers.values())
            told["rank_nodes"] = len(set(engine.rank_nodes))
            told["backend"] = info.resolved["parallel_config"]["distributed_executor_backend"]
            told["groups"] = len(placement_group_table())
            told["start_rows"] = info.in_force.workspace_rows
            told["disagreement"] = info.in_force.disagreement
            for rows in (256, None):
                retune_s = engine.retune({"mla_workspace_rows": rows})
                block = engine.run(requests(2, 1500, output_len=4), ONE_AT_A_TIME, top2=True)
                told[f"rows_{rows}"] = {
                    "retune_s": retune_s,
                    "rows": block.in_force.workspace_rows,
                    "disagreement": block.in_force.disagreement,
                    "chunks": block.counters.context_chunks,
                    "tokens": [list(one.output_token_ids) for one in block.requests],
                    "gaps": [list(one.top2_gaps or ()) for one in block.requests],
                    "errors": [one.error for one in block.requests],
                }
            files = {Path(name) for pid in workers for name in shared_files(pid)}
            told["shared_files"] = len(files)
            engine.stop()

            def left() -> list[str]:
                mine = [str(pid) for pid in ranks_running() if pid in workers]
                leases = [str(path) for path in lease_folder().glob(f"{engine.engine_id}*")]
                scratch = scratch_folder(ranks_id(engine.engine_id))
                return [*mine, *leases, *(str(path) for path in (*files, scratch) if path.exists())]

            end = time.monotonic() + LEFT_S
            while left() and time.monotonic() < end:
                time.sleep(0.05)
            told["left"] = left()
    finally:
        cluster.shutdown()
    return told


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    sys.stdout.write(json.dumps(over_two_nodes(Path(sys.argv[1]), sys.argv[2])) + "\n")
