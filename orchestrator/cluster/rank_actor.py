"""The Ray actors that hold the ranks of a kernel lab but the first, one in each further bundle of the engine's group.

Imports no torch: rank 0 starts them while it imports its own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orchestrator.cluster.custody import Custody
from orchestrator.cluster.groups import nodes_of
from orchestrator.cluster.output import redirect_output

if TYPE_CHECKING:
    from orchestrator.engines.kernel_lab.dcp.collectives import Address
    from orchestrator.engines.kernel_lab.dcp.rank import RankSetup


_LOOPBACK: Final = "127.0.0.1"


class Home(NamedTuple):
    """Where a rank runs: its process, the address at which it is reached, and the port at which it takes commands."""

    pid: int
    host: str
    port: int


class RankActor:
    """One rank, in a Ray worker of its own. What it prints goes to the engine's log file on its node.

    It ends with rank 0, which owns it; what a rank leaves behind (NCCL keeps files in ``/dev/shm``) is its reaper's.
    Commands come over a connection and not as calls of the actor: a call takes milliseconds, which is what some steps
    take, and they would count as the rank's.

    Args:
        key: Known to rank 0 and its ranks alone; a connection without it is closed.
        one_node: Whether all ranks are on this node, so that no other needs to reach them.
    """

    def __init__(self, engine_id: str, rank: int, log_path: str, key: bytes, one_node: bool) -> None:
        redirect_output(log_path)
        # It has no heartbeat: rank 0 speaks for all, and the watchdog sees it only if it is stopped.
        self._custody = Custody(f"{engine_id}-rank-{rank}", log_path=log_path)
        self._rank, self._host = rank, _own_host(one_node)
        self._listener = Listener((self._host, 0), authkey=key)
        # Torch, before anything is timed.
        importlib.import_module("orchestrator.engines.kernel_lab.dcp.group")

    def home(self) -> Home:
        """Answers once torch is imported."""
        return Home(os.getpid(), self._host, self._listener.address[1])

    def serve(self, setup: RankSetup, store: Address) -> None:
        """Run the rank until rank 0 closes the connection, or a step fails."""
        from orchestrator.engines.kernel_lab.dcp.group import run_rank

        with self._listener, _accepted(self._listener) as connection:
            run_rank(connection, setup, self._rank, store, host=self._host)


class Ranks(NamedTuple):
    """The ranks that were started: from rank 1 on their actors, the key to all of them, and where they reach rank 0."""

    actors: list[Any]
    key: bytes
    host: str


NO_RANKS: Final = Ranks([], b"", _LOOPBACK)


def is_on_one_node() -> bool:
    """Whether all bundles of this actor's placement group are on one node; outside of a group there is but one."""
    from ray.util.placement_group import get_current_placement_group

    group = get_current_placement_group()
    return group is None or len(set(nodes_of(group))) == 1


def start_ranks(engine_id: str, log_path: str) -> Ranks:
    """Start an actor in every bundle of this actor's placement group but the first; none outside of a group.

    They inherit this actor's environment.
    """
    import ray
    from ray.util.placement_group import get_current_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = get_current_placement_group()
    if group is None:
        return NO_RANKS
    key, one_node, actors = secrets.token_bytes(32), len(set(nodes_of(group))) == 1, []
    for rank, bundle in enumerate(group.bundle_specs[1:], 1):
        options = {
            "num_cpus": bundle.get("CPU", 0.0),
            "num_gpus": bundle.get("GPU", 0.0),
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        }
        actors.append(ray.remote(RankActor).options(**options).remote(engine_id, rank, log_path, key, one_node))
    return Ranks(actors, key, _own_host(one_node))


def _own_host(one_node: bool) -> str:
    """Where the other ranks reach this process: as the nodes of the cluster know this one, or on this node alone."""
    import ray

    host: str = _LOOPBACK if one_node else ray.util.get_node_ip_address()
    return host


def connected(home: Home, key: bytes) -> Connection:
    """A connection to a rank that serves.

    Raises:
        OSError, EOFError, AuthenticationError: It is not there, or another is.
    """
    connection = Client((home.host, home.port), authkey=key)
    _send_at_once(connection)
    return connection


def _accepted(listener: Listener) -> Connection:
    """The connection of rank 0. Whoever else knocks does not have the key."""
    while True:
        with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):
            connection = listener.accept()
            _send_at_once(connection)
            return connection


def _send_at_once(connection: Connection) -> None:
    """Without this, the end of a long message waits until its beginning is acknowledged: up to 40 ms."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
