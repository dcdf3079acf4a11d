"""Run by test_supervision.py: kernel labs in actors that are stopped and killed in a block, or only slow.

Ray keeps state for the life of a process, so that the cluster has one of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.cluster import NodeWatch, RayEngine, ray_session
from orchestrator.cluster.block_kind import block_kind
from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.cluster.reaper import Lease, engine_processes, lease_folder, scratch_folder, shared_files
from orchestrator.cluster.vitals import vitals
from orchestrator.engines import BlockResult, EngineConfig, EngineError, StopRule
from orchestrator.workloads import Request, Schedule, random_requests
from tests.cluster.lab_ranks_child import is_running, listening, raylets
from tests.cluster.small_lab import ARGS, config, requests

GONE_IN_S = 5.0

LONG: dict[str, Any] = {
    **ARGS,
    "layers": {"dense": 8},
    "heads": 32,
    "max_model_len": 16384,
    "max_num_batched_tokens": 16384,
    "threads": 1,
}
"""A step of 16,384 tokens takes about half a minute on one core."""


class Traces:
    """What a running engine has on this machine, to be looked for afterwards."""

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        self.owner = Lease.read(lease_folder() / f"{engine_id}.json").owner_pid
        self._files = shared_files(self.owner)
        self._ports = listening(self.owner)

    def left(self) -> dict[str, int]:
        """What is still there, after so many seconds at most."""
        end = time.monotonic() + GONE_IN_S
        while any((left := self._left()).values()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def _left(self) -> dict[str, int]:
        return {
            "processes": is_running(self.owner) + len(list(engine_processes(self._engine_id))),
            "ports": len(self._ports & listening()),
            "shared files": sum(Path(name).exists() for name in self._files),
            "leases": len(list(lease_folder().glob(f"{self._engine_id}*"))),
            "scratch": int(scratch_folder(self._engine_id).exists()),
        }


def struck(engine: RayEngine, number: signal.Signals) -> dict[str, Any]:
    """How a long block ends whose actor is struck by a signal, after how many seconds, and what is left then."""
    traces = Traces(engine.engine_id)
    begin: list[float] = []

    def strike() -> None:
        begin.append(time.monotonic())
        os.kill(traces.owner, number)

    striker = threading.Timer(1.0, strike)
    striker.start()
    try:
        engine.run(requests(2000, output_len=40), Schedule())
    except EngineError as error:
        seconds = time.monotonic() - begin[0]
        left = traces.left()
        engine.abort()
        return {"label": error.label, "lost": error.lost, "detail": error.detail, "s": seconds, "left": left}
    return {"label": "none"}


def supervised(logs: Path) -> dict[str, Any]:
    """An actor is stopped; its node loses another engine, and the next goes elsewhere, where its actor is killed."""
    lines: list[str] = []
    nodes = NodeWatch(lines.append)

    def engine() -> RayEngine:
        return RayEngine(logs, kind="kernel_lab", nodes=nodes)

    told: dict[str, Any] = {}
    with raylets():
        first = engine()
        first.start(config(1))
        told["node"] = first.rank_nodes[0]
        told["stopped"] = struck(first, signal.SIGSTOP)
        nodes.lost([told["node"]], "rank-lost")
        second = engine()
        second.start(config(1))
        told["other node"] = second.rank_nodes[0]
        told["killed"] = struck(second, signal.SIGKILL)
    told["lines"] = lines
    return told


class HangingActor(EngineActor):
    """Fault: a block waits for ever with a request in flight."""

    def run(self, *_: object) -> BlockResult:
        # Ray carries this class by value, and a global with it: the progress that counts is the module's.
        from orchestrator.engines import PROGRESS

        with self._heart.during("block"):
            PROGRESS.sent += 1
            threading.Event().wait()
        raise AssertionError


class HangingEngine(RayEngine):
    actor_class = HangingActor


class SpinningActor(EngineActor):
    """Fault: from the fourth block on nothing comes, and a thread computes for ever."""

    def run(self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None) -> BlockResult:
        from orchestrator.engines import PROGRESS

        self._blocks = getattr(self, "_blocks", 0) + 1
        if self._blocks <= 3:
            return super().run(requests, schedule, top2, stop)
        with self._heart.during("block", block_kind(self._live, requests, schedule, top2=top2)):
            PROGRESS.sent += 1
            while True:
                pass


class SpinningEngine(RayEngine):
    actor_class = SpinningActor


def spinning(logs: Path) -> dict[str, Any]:
    """An engine that has served, and then computes without a step."""
    with ray_session():
        engine = SpinningEngine(logs, kind="kernel_lab")
        engine.start(config(1))
        for _ in range(3):
            engine.run(requests(200, output_len=40), Schedule())
        traces, begin = Traces(engine.engine_id), time.monotonic()
        used: list[float] = []
        sampler = threading.Thread(target=sample_cpu, args=(traces.owner, used))
        sampler.start()
        try:
            engine.run(requests(200, output_len=40), Schedule())
        except EngineError as error:
            seconds = time.monotonic() - begin
            sampler.join()
            told = {"label": error.label, "detail": error.detail, "left": traces.left()}
            return {**told, "s": seconds, "cpu_s": used[-1] - used[0]}
    return {"label": "none"}


def sample_cpu(pid: int, used: list[float]) -> None:
    """Note what a process has used of the processor, until it is gone."""
    while (found := vitals(pid)) is not None:
        used.append(found.cpu_s)
        time.sleep(0.2)


def waiting(logs: Path) -> dict[str, Any]:
    """A block that waits for ever, in an actor whose own threads live on."""
    with ray_session():
        engine = HangingEngine(logs, kind="kernel_lab")
        engine.start(config(1))
        traces, begin = Traces(engine.engine_id), time.monotonic()
        try:
            engine.run(requests(), Schedule())
        except EngineError as error:
            seconds = time.monotonic() - begin
            return {"label": error.label, "detail": error.detail, "s": seconds, "left": traces.left()}
    return {"label": "none"}


def long_step(logs: Path) -> dict[str, Any]:
    """A prefill of one step that takes longer than the watchdog waits for an idle engine."""
    with ray_session():
        engine = RayEngine(logs, kind="kernel_lab")
        engine.start(EngineConfig(model="none", args=LONG))
        prompt = random_requests(1, input_len=LONG["max_model_len"] - 1, output_len=1, seed=[7], vocab_size=1024)
        block = engine.run(prompt, Schedule())
        engine.stop()
    return {
        "s": block.duration_s,
        "steps": block.counters.scheduler_steps,
        "errors": [one.error for one in block.requests],
    }


SCENARIOS = {one.__name__: one for one in (supervised, waiting, spinning, long_step)}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))))
