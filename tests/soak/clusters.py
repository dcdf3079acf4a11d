"""Ray clusters for the kill soak: several raylets on this machine, whose nodes come back when they are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    # A worker is there when a new driver wants one.
    "RAY_enable_worker_prestart": "1",
    "PYTHONPATH": str(ROOT),
    # A worker that is killed before it has registered is missed by nobody until then.
    "RAY_worker_register_timeout_seconds": "15",
    "OMP_NUM_THREADS": "1",
}
QUICK = {"health_check_period_ms": 1000, "health_check_timeout_ms": 30000, "health_check_failure_threshold": 4}
"""A node that is gone is noticed within some five seconds, for it refuses; a slow one is left alone."""


class Nodes:
    """A head without room for engines, and nodes with room for some each, kept by a process of their own: Ray, once
    imported, goes by what the environment said then.

    Attributes:
        address: Of the head, for ``--address``.
    """

    def __init__(self, keeper: Connection) -> None:
        self._keeper = keeper
        self.address: str = keeper.recv()
        self._pids: list[int] = keeper.recv()

    def raylets(self) -> list[psutil.Process]:
        """Those of the nodes with room."""
        return [psutil.Process(pid) for pid in self._pids if psutil.pid_exists(pid)]

    def kill_raylet(self, victim: psutil.Process) -> None:
        """SIGKILL the raylet of a node; another node takes its place."""
        self._keeper.send(victim.pid)
        self._pids = self._keeper.recv()


@contextmanager
def ray_nodes(number: int) -> Iterator[Nodes]:
    """A running cluster with so many nodes beside its head. Drivers that are started meanwhile find its environment."""
    context = multiprocessing.get_context("spawn")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ours, theirs = context.Pipe()
        keeper = context.Process(target=_keep, args=(theirs, number))
        keeper.start()
        theirs.close()
        try:
            yield Nodes(ours)
        finally:
            ours.close()
            keeper.join()


def _keep(parent: Connection, number: int) -> None:
    """Hold the cluster until the parent is gone or has enough."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(number):
            _add(cluster)
        parent.send(str(cluster.address))
        with suppress(EOFError):
            while True:
                parent.send([_raylet_pid(node) for node in cluster.worker_nodes])
                victim = parent.recv()
                node = next(node for node in cluster.worker_nodes if _raylet_pid(node) == victim)
                os.kill(victim, signal.SIGKILL)
                # What is left of the node has nobody to work for.
                cluster.remove_node(node, allow_graceful=False)
                _add(cluster)
    finally:
        cluster.shutdown()


def _add(cluster: Any) -> None:
    cluster.add_node(num_cpus=2, include_dashboard=False)


def _raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)
