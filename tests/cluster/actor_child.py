"""Run by test_actor.py: start an engine in an actor, retune it, strike its engine core, and count what is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil

from orchestrator.cluster import RayEngine, ray_session
from orchestrator.cluster.reaper import Lease, engine_processes, lease_folder, scratch_folder, shared_files
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


class Traces:
    """What an engine has on this machine, to be looked for afterwards."""

    def __init__(self, engine: RayEngine) -> None:
        self._engine_id = engine.engine_id
        self._lease = lease_folder() / f"{engine.engine_id}.json"
        owner = Lease.read(self._lease).owner_pid
        self._files = {name for process in engine_processes(engine.engine_id) for name in shared_files(process.pid)}
        self._files |= shared_files(owner)
        (self.core,) = [
            process.pid
            for process in psutil.Process(owner).children()
            if " ".join(process.cmdline()).startswith("VLLM::EngineCor")
        ]

    def left(self) -> str:
        processes = len(list(engine_processes(self._engine_id)))
        files = sum(Path(name).exists() for name in self._files)
        folders = int(scratch_folder(self._engine_id).exists())
        return f"{processes} processes, {files} files, {folders} folders, {int(self._lease.exists())} leases"


def told(error: EngineError) -> str:
    return f"{error.label}, {'lost' if error.lost else 'not lost'}"


def killed(logs: Path) -> None:
    """Two starts that fail, an engine that serves, and its core killed."""
    with ray_session():
        try:
            RayEngine(logs, gpus=64).start(CONFIG)
        except EngineError as error:
            print(f"refused: {error}")
        try:
            RayEngine(logs).start(replace(CONFIG, args={**CONFIG.args, "max_model_len": 2**30}))
        except EngineError as error:
            print(f"failed: {told(error)}: {error.detail}")
        engine = RayEngine(logs)
        info = engine.start(CONFIG)
        print(f"rows {info.in_force.workspace_rows}, bytes {info.in_force.workspace_bytes}")
        requests = random_requests(1, input_len=600, output_len=1, seed=[1], vocab_size=info.vocab_size)
        engine.retune({"mla_workspace_rows": 65536})
        force = engine.run(requests, Schedule()).in_force
        print(f"rows {force.workspace_rows}, bytes {force.workspace_bytes}")
        traces = Traces(engine)
        os.kill(traces.core, signal.SIGKILL)
        try:
            engine.run(requests, Schedule())
        except EngineError as error:
            print(f"killed: {told(error)}")
        engine.abort()
        print(f"left: {traces.left()}")


def stopped(logs: Path) -> None:
    """An engine whose core is stopped in a block."""
    with ray_session():
        engine = RayEngine(logs)
        info = engine.start(CONFIG)
        requests = random_requests(200, input_len=600, output_len=60, seed=[1], vocab_size=info.vocab_size)
        traces, begin = Traces(engine), time.monotonic()
        striker = threading.Timer(2.0, os.kill, (traces.core, signal.SIGSTOP))
        striker.start()
        try:
            engine.run(requests, Schedule())
        except EngineError as error:
            print(f"stopped: {told(error)}: {error.detail}")
        print(f"{time.monotonic() - begin - 2.0:.1f}")
        engine.abort()
        print(f"left: {traces.left()}")


if __name__ == "__main__":
    {"killed": killed, "stopped": stopped}[sys.argv[1]](Path(sys.argv[2]))
