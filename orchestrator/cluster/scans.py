"""What a look over this machine finds of all engines at once, for a reaper that guards many.

Imports only the standard library and psutil, because the reaper does it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

import psutil

from orchestrator.cluster.reaper import living, processes_by_engine, shared_file_names

CLAIMED_IN_S: Final = 5.0
"""Who makes a shared file maps it in the same moment. What no engine has mapped for so long is another program's."""


@dataclass(frozen=True)
class Scan:
    """One look.

    Attributes:
        begun_s: ``CLOCK_MONOTONIC``.
        pids: Of every engine's processes, zombies included, by its id.
        shared: Paths of the files under ``/dev/shm`` that may be an engine's, by their inodes.
        unclaimed: Those of them that are new, and of which nobody has said whose they are.
    """

    begun_s: float
    pids: Mapping[str, Sequence[int]]
    shared: Mapping[int, str]
    unclaimed: Collection[int]


class Scans:
    """Looks that any number of threads share: one look serves all that ask for it while it is new enough."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: Scan | None = None
        self._since_s: dict[int, float] = {}
        self._claimed: set[int] = set()

    def last(self, age_s: float) -> Scan:
        """A look that is no older."""
        return self._begun_since(time.monotonic() - age_s)

    def processes(self, engine_id: str) -> Iterable[psutil.Process]:
        """Every live process of an engine now, as ``reaper.engine_processes``."""
        return living(self._begun_since(time.monotonic()).pids.get(engine_id, ()))

    def claim(self, inodes: Iterable[int]) -> None:
        """These shared files are known to be an engine's."""
        with self._lock:
            self._claimed.update(inodes)

    def _begun_since(self, at_s: float) -> Scan:
        # Whoever waits here while another looks gets what the next one finds, which begins after all of them asked.
        with self._lock:
            if self._last is None or self._last.begun_s < at_s:
                self._last = self._look()
            return self._last

    def _look(self) -> Scan:
        now = time.monotonic()
        shared = shared_file_names()
        self._since_s = {inode: self._since_s.get(inode, now) for inode in shared}
        self._claimed &= shared.keys()
        new = {inode for inode, since_s in self._since_s.items() if now - since_s <= CLAIMED_IN_S}
        return Scan(now, processes_by_engine(), shared, new - self._claimed)
