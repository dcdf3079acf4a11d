"""The other ranks of a kernel lab, as rank 0 sees them: actors of one placement group, on one node or on several."""

from __future__ import annotations

from multiprocessing import AuthenticationError
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError

from orchestrator.cluster.rank_actor import Home, Ranks, connected
from orchestrator.engines.kernel_lab.dcp.collectives import Address, Collective, TorchCollective, open_store
from orchestrator.engines.kernel_lab.dcp.connected import START_TIMEOUT_S, ConnectedPeers
from orchestrator.engines.kernel_lab.dcp.rank import RankSetup
from orchestrator.engines.kernel_lab.errors import LabError

_VERDICT_TIMEOUT_S = 5.0
"""How long Ray may take to say how a rank ended whose connection is closed."""


class RayPeers(ConnectedPeers):
    """Ranks that are actors.

    Args:
        ranks: What ``start_ranks`` gave, at least one actor.
    """

    collective: Collective

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(len(ranks.actors) + 1)
        self._actors, self._key, self._host = ranks
        self._homes: list[Home] = []
        self._serving: list[Any] = []

    def wait_until_up(self) -> None:
        """Wait until all have imported what they need; until then they keep the processor busy.

        Raises:
            LabError: ``rank-lost`` or ``out-of-memory``.
        """
        asked = [actor.home.remote() for actor in self._actors]
        for rank, reference in enumerate(asked, 1):
            try:
                self._homes.append(ray.get(reference, timeout=START_TIMEOUT_S))
            except RayError as error:
                raise _lost_to(error, f"{self._name(rank)} does not come up: its process") from error

    def join(self, setup: RankSetup) -> RayPeers:
        """Have all ranks come together; a ``MakePeers``.

        Raises:
            LabError: ``rank-lost``, or what a rank says.
        """
        try:
            store = open_store(Address(self._host, 0), setup.ranks, is_host=True, timeout_s=START_TIMEOUT_S)
            address = Address(self._host, store.port)
            self._serving = [actor.serve.remote(setup, address) for actor in self._actors]
            self._connections = [self._connected(rank, home) for rank, home in enumerate(self._homes, 1)]
            self.collect()
            self.collective = TorchCollective(store, 0, setup.ranks, setup.device_of(0), host=self._host)
        except LabError:
            self.close()
            raise
        return self

    def close(self) -> None:
        """As in ``Peers``."""
        for actor in self._actors:
            ray.kill(actor, no_restart=True)

    def _connected(self, rank: int, home: Home) -> Any:
        try:
            return connected(home, self._key)
        except (OSError, EOFError, AuthenticationError) as error:
            raise LabError("rank-lost", f"{self._name(rank)} takes no commands at {home.host}: {error}") from error

    def _dead(self) -> LabError | None:
        for rank in sorted(self._gone):
            try:
                ray.get(self._serving[rank - 1], timeout=_VERDICT_TIMEOUT_S)
            except RayError as error:
                home = self._homes[rank - 1]
                return _lost_to(error, f"{self._name(rank)} is gone: process {home.pid} on {home.host}")
        return None


def _lost_to(error: RayError, process: str) -> LabError:
    """What became of a rank's process, by what Ray says of it."""
    if isinstance(error, OutOfMemoryError):
        return LabError("out-of-memory", f"{process} was killed by Ray's memory monitor")
    if isinstance(error, GetTimeoutError):
        return LabError("rank-lost", f"{process} does not answer")
    if isinstance(error, RayActorError):
        return LabError("rank-lost", f"{process} ended")
    cause = getattr(error, "cause", error)
    lines = str(cause).strip().splitlines()
    return LabError("rank-lost", f"{process} failed with {type(cause).__name__}: {lines[0] if lines else ''}")
