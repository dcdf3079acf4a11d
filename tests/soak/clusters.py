"""Ray clusters for the kill soak: several raylets on this machine, whose nodes come back when they are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
    """A head without room for engines, and nodes with room for some each."""

    def __init__(self, cluster: Any, number: int) -> None:
        self._cluster = cluster
        for _ in range(number):
            self._add()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def raylets(self) -> list[psutil.Process]:
        """Those of the nodes with room."""
        return [psutil.Process(pid) for pid in map(_raylet_pid, self._cluster.worker_nodes) if psutil.pid_exists(pid)]

    def kill_raylet(self, victim: psutil.Process) -> None:
        """SIGKILL the raylet of a node; another node takes its place."""
        node = next(node for node in self._cluster.worker_nodes if _raylet_pid(node) == victim.pid)
        os.kill(victim.pid, signal.SIGKILL)
        # What is left of the node has nobody to work for.
        self._cluster.remove_node(node, allow_graceful=False)
        self._add()

    def _add(self) -> None:
        self._cluster.add_node(num_cpus=2, include_dashboard=False)


@contextmanager
def ray_nodes(number: int) -> Iterator[Nodes]:
    """A running cluster with so many nodes beside its head."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield Nodes(cluster, number)
        finally:
            cluster.shutdown()


def _raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)
