"""Run by test_actor.py: start an engine in an actor, retune it, kill its engine core, and count what is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil

from orchestrator.cluster import RayEngine, ray_session
from orchestrator.cluster.reaper import Lease, engine_processes, lease_folder, shared_files
from orchestrator.engines import EngineConfig, EngineError
from orchestrator.models import tiny_model
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Schedule, random_requests

CONFIG = EngineConfig(
    model=str(tiny_model()),
    args={
        "dtype": "bfloat16",
        "max_model_len": 8192,
        "max_num_batched_tokens": 256,
        "max_num_seqs": 4,
        "enforce_eager": True,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
    },
    env={"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"},
    plugin=PluginSettings(cpu_chunked_prefill=True, mla_workspace_rows=256),
)


def main() -> None:
    with ray_session():
        try:
            RayEngine(Path(sys.argv[1]), gpus=64).start(CONFIG)
        except EngineError as error:
            print(f"refused: {error}")
        engine = RayEngine(Path(sys.argv[1]))
        info = engine.start(CONFIG)
        print(f"rows {info.in_force.workspace_rows}, bytes {info.in_force.workspace_bytes}")
        requests = random_requests(1, input_len=600, output_len=1, seed=[1], vocab_size=info.vocab_size)
        engine.retune({"mla_workspace_rows": 65536})
        force = engine.run(requests, Schedule()).in_force
        print(f"rows {force.workspace_rows}, bytes {force.workspace_bytes}")
        lease = lease_folder() / f"{engine.engine_id}.json"
        owner = Lease.read(lease).owner_pid
        files = {name for process in engine_processes(engine.engine_id) for name in shared_files(process.pid)}
        files |= shared_files(owner)
        core = [p for p in psutil.Process(owner).children() if " ".join(p.cmdline()).startswith("VLLM::EngineCor")]
        os.kill(core[0].pid, signal.SIGKILL)
        try:
            engine.run(requests, Schedule())
        except EngineError as error:
            print(f"killed: {error.label}, {'lost' if error.lost else 'not lost'}")
        engine.abort()
        processes = len(list(engine_processes(engine.engine_id)))
        left = sum(Path(name).exists() for name in files)
        print(f"left: {processes} processes, {left} files, {int(lease.exists())} leases")


if __name__ == "__main__":
    main()
