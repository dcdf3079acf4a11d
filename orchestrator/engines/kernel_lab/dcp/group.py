"""How the ranks of an engine are made: processes of this machine, or threads of this process for tests.

Rank 0 is the process that asks. Each other rank has a connection to it, over which commands come and answers go.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
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
from orchestrator.engines.kernel_lab.dcp.peers import Command, Peers, Step
from orchestrator.engines.kernel_lab.dcp.rank import Rank, RankSetup
from orchestrator.engines.kernel_lab.errors import Label, LabError
from orchestrator.engines.kernel_lab.machine import pin, shared_cores

START_TIMEOUT_S: Final = 180.0
"""How long a rank may take to import torch and to build its layers."""

_STOP_TIMEOUT_S: Final = 5.0
_BLAME_TIMEOUT_S: Final = 5.0
_HOST: Final = "127.0.0.1"

MakePeers = Callable[[RankSetup], Peers]
"""Starts the ranks of an engine but the first."""


@dataclass(frozen=True)
class _Failure:
    label: Label
    detail: str


_Answer = _Failure | None


def serve(connection: Connection, setup: RankSetup, connect: Callable[[], Collective]) -> None:
    """Run one rank until its connection is closed, or a step of it fails.

    It answers once it is up, before it waits for the others; once it is ready; and every command.

    Args:
        connect: Joins the group.
    """
    try:
        connection.send(None)
        rank = _answered(connection, lambda: Rank(setup, connect()))
        while rank is not None:
            command: Command = connection.recv()
            done = _answered(connection, lambda command=command, rank=rank: _handled(rank, command))  # type: ignore[misc]
            if done is None and isinstance(command, Step):
                return
    except (EOFError, OSError):
        # Rank 0 is gone: nobody is left to tell.
        return


def _handled(rank: Rank, command: Command) -> Rank:
    rank.handle(command)
    return rank


def _answered(connection: Connection, act: Callable[[], Rank]) -> Rank | None:
    """What ``act`` returns; None if it failed. Either way it is answered."""
    answer: _Answer = None
    result = None
    try:
        result = act()
    except LabError as error:
        answer = _Failure(error.label, error.detail)
    except MemoryError as error:
        answer = _Failure("out-of-memory", str(error))
    connection.send(answer)
    return result


class _Connected(ABC):
    """Peers with a connection each."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self._ranks = len(connections) + 1
        self._gone: set[int] = set()

    def post(self, command: Command) -> None:
        for rank, connection in enumerate(self._connections, 1):
            try:
                connection.send(command)
            except OSError as error:
                raise LabError("rank-lost", f"rank {rank} of {self._ranks} takes no commands") from error

    def collect(self) -> None:
        self._require(self._answers(START_TIMEOUT_S))

    def lost(self, error: LabError) -> LabError:
        answers = self._answers(_BLAME_TIMEOUT_S)
        causes = [one for one in answers.values() if one is not None and one.label != "rank-lost"]
        if dead := self._dead():
            return LabError("rank-lost", dead)
        return LabError(causes[0].label, causes[0].detail) if causes else error

    def _require(self, answers: dict[int, _Answer]) -> None:
        if dead := self._dead():
            raise LabError("rank-lost", dead)
        for answer in answers.values():
            if answer is not None:
                raise LabError(answer.label, answer.detail)
        if missing := sorted(set(range(1, self._ranks)) - set(answers)):
            raise LabError("rank-lost", f"rank {missing[0]} of {self._ranks} gave no answer in time")

    def _answers(self, timeout_s: float) -> dict[int, _Answer]:
        """One answer of each rank, until one is found to have died; those that are late give none."""
        end = time.monotonic() + timeout_s
        waiting = dict(zip(self._connections, range(1, self._ranks), strict=True))
        answers: dict[int, _Answer] = {}
        while waiting and (left := end - time.monotonic()) > 0:
            for connection in wait(list(waiting), left):
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    # It closes after an answer only, unless its rank died: then the others may never answer.
                    self._gone.add(rank)
                    return answers
                answers[rank] = answer and _Failure(answer.label, f"rank {rank} of {self._ranks}: {answer.detail}")
        return answers

    def _close_connections(self) -> None:
        for connection in self._connections:
            connection.close()

    @abstractmethod
    def _dead(self) -> str | None:
        """Of the ranks whose connection is closed, which one ended and how, in words; None if each chose to."""


class SpawnedPeers(_Connected):
    """Ranks that are processes of this machine.

    Raises:
        LabError: ``rank-lost`` or what a rank says when it starts.
    """

    def __init__(self, setup: RankSetup) -> None:
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
        super().__init__(connections)
        try:
            self.collect()
            self.collective: Collective = TorchCollective(store, 0, setup.ranks, setup.device_of(0))
        except LabError:
            self.close()
            raise

    def close(self) -> None:
        # They hold nothing that must be kept, and a Python with torch takes a second to end by itself.
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(_STOP_TIMEOUT_S)

    def _dead(self) -> str | None:
        for rank in sorted(self._gone):
            process = self.processes[rank - 1]
            # Its connection closes a moment before it can be waited for.
            process.join(_STOP_TIMEOUT_S)
            if process.exitcode:
                return f"rank {rank} of {self._ranks} ended with {_exit_text(process.exitcode)}"
        return None


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _run_process(connection: Connection, setup: RankSetup, rank: int, address: Address) -> None:
    # An interrupt from the terminal reaches all processes; rank 0 ends the others in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin(setup.args.threads, shared_cores(setup.args.cores, rank, setup.ranks))

    def connect() -> Collective:
        store = open_store(address, setup.ranks, is_host=False, timeout_s=COLLECTIVE_TIMEOUT_S)
        return TorchCollective(store, rank, setup.ranks, setup.device_of(rank))

    serve(connection, setup, connect)


class ThreadPeers(_Connected):
    """Ranks that are threads of this process and exchange by plain copies: for tests of many ranks."""

    def __init__(self, setup: RankSetup) -> None:
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
        super().__init__(connections)
        self.collect()

    def close(self) -> None:
        self._exchange.abort()
        self._close_connections()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT_S)

    def _run(self, connection: Connection, setup: RankSetup, rank: int) -> None:
        try:
            serve(connection, setup, lambda: LoopbackCollective(self._exchange, rank))
        finally:
            self._exchange.abort()
            connection.close()

    def _dead(self) -> str | None:
        return None
