"""Run by test_lab_ranks.py: a cluster of raylets on this machine, a kernel lab over its nodes, and what is left of it.

Ray keeps state for the life of a process, so that the cluster has one of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from orchestrator.cluster import RayEngine, ray_session
from orchestrator.cluster.reaper import Lease, engine_processes, lease_folder
from orchestrator.engines import EngineError
from orchestrator.workloads import Schedule
from tests.cluster.small_lab import config, requests

RANKS = 4


class Raylets:
    """A head node and another, with two CPUs each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        self.other: Any = self.cluster.add_node(num_cpus=2)
        self.address: str = self.cluster.address
        self.pids = {
            node.node_id: node.all_processes["raylet"][0].process.pid for node in (self.cluster.head_node, self.other)
        }


class Traces:
    """What a running engine has on this machine, remembered so that it can be looked for afterwards."""

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        names = [engine_id, *(f"{engine_id}-rank-{rank}" for rank in range(1, RANKS))]
        self.workers = [Lease.read(lease_folder() / f"{name}.json").owner_pid for name in names]
        self._ports = listening(self.workers[0])

    def left(self, timeout_s: float = 5.0) -> dict[str, int]:
        """What is still there, after so much time at most."""
        end = time.monotonic() + timeout_s
        while any((left := self._left()).values()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def _left(self) -> dict[str, int]:
        return {
            "workers": sum(map(is_running, self.workers)),
            "children": len(list(engine_processes(self._engine_id))),
            "leases": len(list(lease_folder().glob(f"{self._engine_id}*"))),
            "ports": len(self._ports & listening()),
            "groups": groups_left(),
        }


def listening(pid: int | None = None) -> set[int]:
    """TCP ports at which a process waits for connections; None for all processes."""
    found = psutil.net_connections("tcp") if pid is None else psutil.Process(pid).net_connections("tcp")
    return {one.laddr[1] for one in found if one.laddr and one.status == psutil.CONN_LISTEN}


def groups_left() -> int:
    """Placement groups of the cluster that are not removed."""
    from ray.util.placement_group import placement_group_table

    return sum(group["state"] != "REMOVED" for group in placement_group_table().values())


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def raylets() -> Iterator[Raylets]:
    raylets = Raylets()
    try:
        with ray_session(raylets.address):
            yield raylets
    finally:
        raylets.cluster.shutdown()


def new_engine(logs: Path, cpus: float = RANKS, *, spread: bool = False) -> RayEngine:
    return RayEngine(logs, kind="kernel_lab", cpus=cpus, spread=spread)


def failure(act: Callable[[], object]) -> dict[str, Any]:
    """How it fails, and after how many seconds."""
    begin = time.monotonic()
    try:
        act()
    except EngineError as error:
        return {"label": error.label, "lost": error.lost, "line": str(error), "s": time.monotonic() - begin}
    return {"label": "none"}


def two_nodes(logs: Path) -> dict[str, Any]:
    """A block over two nodes; then a rank is killed between blocks."""
    told: dict[str, Any] = {}
    with raylets() as cluster:
        told["refused"] = failure(lambda: new_engine(logs, 8.0).start(config(8)))
        told["refused"]["groups"] = groups_left()
        engine = new_engine(logs)
        engine.start(config(RANKS))
        traces = Traces(engine.engine_id)
        told["nodes"] = len(set(engine.rank_nodes))
        told["order"] = [engine.rank_nodes.index(node) for node in engine.rank_nodes]
        told["is_child_of_its_raylet"] = [
            psutil.Process(pid).ppid() == cluster.pids[node]
            for pid, node in zip(traces.workers, engine.rank_nodes, strict=True)
        ]
        block = engine.run(requests(), Schedule())
        told["tokens"] = [list(one.output_token_ids) for one in block.requests]
        told["pid"] = traces.workers[2]
        os.kill(traces.workers[2], signal.SIGKILL)
        told["killed"] = failure(lambda: engine.run(requests(), Schedule()))
        engine.abort()
        told["left"] = traces.left()
    return told


def in_a_block(logs: Path) -> dict[str, Any]:
    """A rank, rank 0, then a node with its ranks, is killed in a block; at last an engine is stopped in good order."""
    told: dict[str, Any] = {}
    with raylets() as cluster:
        for name in ("rank", "first", "node"):
            engine = new_engine(logs)
            engine.start(config(RANKS))
            traces = Traces(engine.engine_id)
            told[f"{name}_nodes"] = len(set(engine.rank_nodes))

            def kill(name: str = name, traces: Traces = traces) -> None:
                if name == "node":
                    cluster.cluster.remove_node(cluster.other, allow_graceful=False)
                else:
                    os.kill(traces.workers[3 if name == "rank" else 0], signal.SIGKILL)

            killer = threading.Timer(1.0, kill)
            killer.start()
            told[name] = failure(lambda engine=engine: engine.run(requests(2000, output_len=40), Schedule()))  # type: ignore[misc]
            killer.join()
            engine.abort()
            told[f"{name}_left"] = traces.left()
        cluster.cluster.add_node(num_cpus=2)
        engine = new_engine(logs)
        engine.start(config(RANKS))
        traces = Traces(engine.engine_id)
        engine.stop()
        told["stopped_left"] = traces.left()
    return told


def driver_killed(logs: Path) -> dict[str, Any]:
    """A driver of its own is killed with an engine that it started."""
    told: dict[str, Any] = {}
    with raylets() as cluster:
        command = [sys.executable, __file__, "drive", str(logs), cluster.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            traces = Traces(driver.stdout.readline().strip())
            told["groups"] = groups_left()
            driver.kill()
        told["left"] = traces.left()
    return told


def one_node_or_all(logs: Path) -> dict[str, Any]:
    """Four ranks that fit on one node: there, then spread over both."""
    told: dict[str, Any] = {}
    with raylets():
        for name, spread in (("packed", False), ("spread", True)):
            engine = new_engine(logs, 1.0, spread=spread)
            engine.start(config(RANKS))
            traces = Traces(engine.engine_id)
            block = engine.run(requests(), Schedule())
            told[name] = {
                "order": [engine.rank_nodes.index(node) for node in engine.rank_nodes],
                "tokens": [list(one.output_token_ids) for one in block.requests],
                "linked": sorted(linked(traces.workers)),
            }
            engine.stop()
            told[name]["left"] = traces.left()
    return told


def linked(pids: list[int]) -> set[str]:
    """Addresses over which these processes are connected to each other. Ray's own connections are of IPv6 sockets."""
    found = [one for pid in pids for one in psutil.Process(pid).net_connections("tcp4") if one.raddr]
    ends = {tuple(one.laddr) for one in found}
    return {one.laddr[0] for one in found if tuple(one.raddr) in ends}


def drive(logs: Path) -> None:
    """Start an engine, name it, and wait to be killed."""
    with ray_session(sys.argv[3]):
        engine = new_engine(logs)
        engine.start(config(RANKS))
        print(engine.engine_id, flush=True)
        sys.stdin.read()


SCENARIOS = {one.__name__: one for one in (two_nodes, in_a_block, driver_killed, one_node_or_all)}

if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(Path(sys.argv[2]))
    else:
        print(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))))
