"""How the ranks of an engine are made: processes of this machine, or threads of this process for tests.

Rank 0 is the process that asks. Each other rank has a connection to it, over which commands come and answers go.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

from orchestrator.engines.kernel_lab.dcp.collectives import (
    COLLECTIVE_TIMEOUT_S,
    Address,
    Collective,
    Exchange,
    LoopbackCollective,
    TorchCollective,
    open_store,
)
from orchestrator.engines.kernel_lab.dcp.connected import START_TIMEOUT_S, ConnectedPeers, serve
from orchestrator.engines.kernel_lab.dcp.peers import Peers
from orchestrator.engines.kernel_lab.dcp.rank import RankSetup
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.machine import pin, shared_cores

_STOP_TIMEOUT_S: Final = 5.0
_HOST: Final = "127.0.0.1"

MakePeers = Callable[[RankSetup], Peers]
"""Starts the ranks of an engine but the first."""


class SpawnedPeers(ConnectedPeers):
    """Ranks that are processes of this machine.

    Raises:
        LabError: ``rank-lost`` or what a rank says when it starts.
    """

    def __init__(self, setup: RankSetup) -> None:
        super().__init__(setup.ranks)
        spawn = multiprocessing.get_context("spawn")
        store = open_store(Address(_HOST, 0), setup.ranks, is_host=True, timeout_s=START_TIMEOUT_S)
        address = Address(_HOST, store.port)
        connections: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for rank in range(1, setup.ranks):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=_run_process, args=(theirs, setup, rank, address), name=f"dcp-rank-{rank}", daemon=True
            )
            process.start()
            # With our copy open, the end of the process would not be seen.
            theirs.close()
            connections.append(ours)
            self.processes.append(process)
        self._connections = connections
        try:
            self.collect()
            self.collective: Collective = TorchCollective(store, 0, setup.ranks, setup.device_of(0), host=_HOST)
        except LabError:
            self.close()
            raise

    def close(self) -> None:
        # They hold nothing that must be kept, and a Python with torch takes a second to end by itself.
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(_STOP_TIMEOUT_S)

    def _dead(self) -> LabError | None:
        for rank in sorted(self._gone):
            process = self.processes[rank - 1]
            # Its connection closes a moment before it can be waited for.
            process.join(_STOP_TIMEOUT_S)
            if process.exitcode:
                return LabError("rank-lost", f"{self._name(rank)} ended with {_exit_text(process.exitcode)}")
        return None


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _run_process(connection: Connection, setup: RankSetup, rank: int, store: Address) -> None:
    # An interrupt from the terminal reaches all processes; rank 0 ends the others in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_rank(connection, setup, rank, store, host=_HOST)


def run_rank(connection: Connection, setup: RankSetup, rank: int, store: Address, *, host: str) -> None:
    """Run one rank on the calling thread of a process of its own, as ``serve`` does.

    Args:
        store: Where the ranks meet.
        host: See ``TorchCollective``.
    """
    pin(setup.args.threads, shared_cores(setup.args.cores, rank, setup.ranks))

    def connect() -> Collective:
        opened = open_store(store, setup.ranks, is_host=False, timeout_s=COLLECTIVE_TIMEOUT_S)
        return TorchCollective(opened, rank, setup.ranks, setup.device_of(rank), host=host)

    serve(connection, setup, connect)


class ThreadPeers(ConnectedPeers):
    """Ranks that are threads of this process and exchange by plain copies: for tests of many ranks."""

    def __init__(self, setup: RankSetup) -> None:
        super().__init__(setup.ranks)
        self._exchange = Exchange(setup.ranks)
        self.collective: Collective = LoopbackCollective(self._exchange, 0)
        connections, self._threads = [], []
        for rank in range(1, setup.ranks):
            ours, theirs = multiprocessing.Pipe()
            name = f"dcp-rank-{rank}"
            thread = threading.Thread(target=self._run, args=(theirs, setup, rank), name=name, daemon=True)
            thread.start()
            connections.append(ours)
            self._threads.append(thread)
        self._connections = connections
        self.collect()

    def close(self) -> None:
        self._exchange.abort()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT_S)

    def _run(self, connection: Connection, setup: RankSetup, rank: int) -> None:
        try:
            serve(connection, setup, lambda: LoopbackCollective(self._exchange, rank))
        finally:
            self._exchange.abort()
            connection.close()

    def _dead(self) -> LabError | None:
        return None
