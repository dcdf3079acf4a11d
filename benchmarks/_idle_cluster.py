"""A Ray cluster on this machine as a job finds one that runs already: its worker processes are up, and have no work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psutil

from orchestrator.errors import ChunksmithError

_QUIET: Final = 20.0
"""Percent of the machine's processor time below which it counts as at rest, over a second."""

_UP_S: Final = 120.0

_PRELOAD: Final = "RAY_preload_python_modules"

_IDLE: Final = "ray::IDLE"
"""What a Ray worker calls itself once it waits for work."""


@contextmanager
def idle_cluster(slots: int, imported: Sequence[str] = ()) -> Iterator[None]:
    """Start a cluster with a CPU for each slot, wait until it is at rest, and connect to it; stop it at the end.

    Args:
        imported: Modules that its workers have imported before they wait, by Ray's own setting for that.

    Raises:
        ChunksmithError: Its workers did not come up.
    """
    os.environ.update(_environment(slots))
    os.environ.pop(_PRELOAD, None)
    if imported:
        os.environ[_PRELOAD] = ",".join(imported)
    from ray.cluster_utils import Cluster

    from orchestrator.cluster import ray_session

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": slots, "include_dashboard": False})
    try:
        with ray_session(cluster.address):
            _wait_until_idle(cluster, slots)
            yield
    finally:
        cluster.shutdown()


def _environment(slots: int) -> dict[str, str]:
    """What Ray is started with: its own settings on a machine with a core for each slot, but for the niceness. Left to
    itself it runs workers behind whatever else there is on the machine."""
    return {
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
        "RAY_enable_worker_prestart": "1",
        "RAY_worker_maximum_startup_concurrency": str(slots),
    }


def _wait_until_idle(cluster: Any, slots: int) -> None:
    raylet = psutil.Process(cluster.head_node.all_processes["raylet"][0].process.pid)
    deadline = time.monotonic() + _UP_S
    while psutil.cpu_percent(1.0) > _QUIET or sum(map(_is_idle, raylet.children())) < slots:
        if time.monotonic() > deadline:
            raise ChunksmithError(f"the cluster is not at rest after {_UP_S:.0f} s, with {slots} workers that are up")


def _is_idle(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[:1] == [_IDLE]
    except psutil.Error:
        return False
