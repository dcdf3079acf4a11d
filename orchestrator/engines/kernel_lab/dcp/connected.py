"""Ranks with a connection each: commands come over it and answers go, wherever the rank runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Final

import torch

from orchestrator.engines.kernel_lab.dcp.collectives import Collective
from orchestrator.engines.kernel_lab.dcp.peers import Command, Step
from orchestrator.engines.kernel_lab.dcp.rank import Rank, RankSetup
from orchestrator.engines.kernel_lab.errors import Label, LabError

START_TIMEOUT_S: Final = 180.0
"""How long a rank may take to import torch and to build its layers."""

_BLAME_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class _Failure:
    """What a rank says that could not do what it was told."""

    label: Label
    detail: str

    @classmethod
    def of(cls, error: Exception) -> _Failure | None:
        """An error in words; None for one that the lab does not know, which ends the rank."""
        if isinstance(error, LabError):
            return cls(error.label, error.detail)
        # On a CPU torch has no class of its own for it.
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error):
            return cls("out-of-memory", " ".join(str(error).split()))
        return None


_Answer = _Failure | None
"""None: it is done."""


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
    """What ``act`` returns; None if it failed. Either way it is answered, but for an error that ends the rank."""
    try:
        result = act()
    except (LabError, MemoryError, RuntimeError) as error:
        if (failure := _Failure.of(error)) is None:
            raise
        connection.send(failure)
        return None
    connection.send(None)
    return result


class ConnectedPeers(ABC):
    """The other ranks of an engine, as rank 0 sees them: all of ``Peers`` but how they begin and end.

    Args:
        ranks: Of the engine, rank 0 included.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._connections: Sequence[Connection] = []
        self._gone: set[int] = set()

    def post(self, command: Command) -> None:
        """As in ``Peers``."""
        for rank, connection in enumerate(self._connections, 1):
            try:
                connection.send(command)
            except OSError as error:
                raise LabError("rank-lost", f"{self._name(rank)} takes no commands") from error

    def collect(self) -> None:
        """As in ``Peers``."""
        answers = self._answers(START_TIMEOUT_S)
        if (dead := self._dead()) is not None:
            raise dead
        for rank, answer in answers.items():
            if answer is not None:
                raise self._said(rank, answer)
        if missing := sorted(set(range(1, self._ranks)) - set(answers)):
            raise LabError("rank-lost", f"{self._name(missing[0])} gave no answer in time")

    def lost(self, error: LabError) -> LabError:
        """As in ``Peers``."""
        answers = self._answers(_BLAME_TIMEOUT_S)
        if (dead := self._dead()) is not None:
            return dead
        for rank, answer in answers.items():
            if answer is not None and answer.label != "rank-lost":
                return self._said(rank, answer)
        return error

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
                    answers[rank] = connection.recv()
                except (EOFError, OSError):
                    # It closes after an answer only, unless its rank died: then the others may never answer.
                    self._gone.add(rank)
                    return answers
        return answers

    def _said(self, rank: int, answer: _Failure) -> LabError:
        return LabError(answer.label, f"{self._name(rank)}: {answer.detail}")

    def _name(self, rank: int) -> str:
        return f"rank {rank} of {self._ranks}"

    @abstractmethod
    def _dead(self) -> LabError | None:
        """Of the ranks whose connection is closed, which one died and how; None if each chose to end."""
