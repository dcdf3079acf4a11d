"""Join a Ray cluster, or start one on this machine for the length of a sweep."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from orchestrator.cluster.groups import node_shapes
from orchestrator.cluster.nodes import NodeWatch
from orchestrator.errors import ChunksmithError, UserError

AuthMode = Literal["token", "disabled"]

CONNECT_TIMEOUT_S = 10.0

_OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""For a local cluster: prompts and timelines are small, and the store lies in ``/dev/shm``, which engines need too."""


@contextmanager
def ray_session(
    address: str | None = None, *, auth_mode: AuthMode | None = None, dashboard_port: int | None = None
) -> Iterator[None]:
    """Connect to Ray, and disconnect (or stop the local cluster) at the end.

    Args:
        address: ``None`` starts a cluster on this machine; ``"auto"`` or ``host:port`` joins a running one.
        auth_mode: Ray's ``RAY_AUTH_MODE``, which is always set here: left to itself, Ray 2.60 runs open until its
            first start has written a token and with it afterwards, and refuses clients that do not say the same.
            None takes it from the environment, else ``"token"`` for a local cluster; for a running one ``"token"``
            if this user has one.
        dashboard_port: Start Ray's dashboard of a local cluster on this port of the loopback.

    Raises:
        UserError: The port is taken, or no cluster answers at the address.
    """
    if dashboard_port is not None:
        if address is not None:
            raise UserError("--dashboard-port starts a dashboard of a local cluster; it cannot go with --address")
        _require_free_port(dashboard_port)
    if address is not None:
        _require_reachable(address)
    _set_auth_mode(auth_mode, local=address is None)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default; spares a warning
    if address is None:
        # An engine is one worker; Ray would start one for each core at once, and the engine's start competes with them.
        os.environ.setdefault("RAY_enable_worker_prestart", "0")
        # Left to itself, Ray runs its workers at niceness 15, and an engine would be measured behind everything else.
        os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    try:
        if address is None:
            ray.init(
                address="local",
                num_cpus=os.cpu_count(),
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=dashboard_port is not None,
                dashboard_host="127.0.0.1",
                dashboard_port=dashboard_port,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if address is None:
            raise ChunksmithError(f"Ray did not start on this machine: {_last_line(error)}") from error
        raise UserError(f"--address {address}: no Ray cluster answers there: {_last_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def engines_that_fit(
    most: int, *, cpus: float, gpus: float, nodes: NodeWatch | None = None, growth_s: float = 0.0
) -> int:
    """How many engines, 1 to ``most``, can run at a time on the cluster that Ray is connected to.

    Args:
        cpus, gpus: Of one engine.
        nodes: Told what nodes there are.
        growth_s: See ``Timeouts``: where the cluster grows, an engine that it has no room for yet will have it.

    Raises:
        UserError: Not one can; Ray itself would wait for ever, in the hope of a new node.
    """
    if nodes is not None:
        nodes.saw(node_shapes())
    has = cluster_resources()
    for name, key, asked in (("CPU", "cpus", cpus), ("GPU", "gpus", gpus)):
        if asked > has[name] and growth_s == 0:
            raise UserError(
                f"resources.{key}: an engine with {asked:g} {name}s exceeds the {has[name]:g} of the cluster"
            )
        if asked > 0:
            most = max(1, min(most, int(has[name] // asked)))
    return most


def cluster_resources() -> dict[str, float]:
    """CPUs and GPUs of the whole cluster that Ray is connected to."""
    import ray

    found = ray.cluster_resources()
    return {"CPU": float(found.get("CPU", 0)), "GPU": float(found.get("GPU", 0))}


def _set_auth_mode(auth_mode: AuthMode | None, *, local: bool) -> None:
    before = os.environ.get("RAY_AUTH_MODE")
    has_token = bool(os.environ.get("RAY_AUTH_TOKEN")) or (Path.home() / ".ray" / "auth_token").exists()
    mode = auth_mode or before or ("token" if local or has_token else "disabled")
    if "ray" in sys.modules and mode != before:
        raise ChunksmithError(
            f"Ray reads RAY_AUTH_MODE when it is imported, which has happened: set it to {mode!r} before"
        )
    os.environ["RAY_AUTH_MODE"] = mode


def _require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--dashboard-port {port}: {error.strerror}; choose a free port") from error


def _require_reachable(address: str) -> None:
    """Knock first: Ray's own client ends the whole process when nobody answers at ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        return  # "auto", or a form that Ray checks itself
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UserError(f"--address {address}: no Ray cluster answers there: {error.strerror or error}") from error


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
