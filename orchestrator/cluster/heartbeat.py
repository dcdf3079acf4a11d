"""The heartbeat of an engine: a page of memory that its owner renews every second, and its reaper reads.

A page that is mapped from a file: it costs no system call, and cannot fail for want of disk once it is there. Imports
the standard library alone, because the reaper reads it.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from orchestrator.engines import Progress

Phase = Literal["start", "idle", "retune", "block", "stop"]
"""What an engine is doing."""

BEAT_EVERY_S = 1.0

_PHASES: tuple[Phase, ...] = get_args(Phase)
_PAGE = struct.Struct("=ddBBqqqq")


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One beat. Times are of ``CLOCK_MONOTONIC``, which is the same for all processes of a machine.

    Attributes:
        at_s: When it was made; 0 before the first.
        since_s: When the phase began.
        is_alone: Whether the whole engine is on this node. Another's part may be at work while this one waits.
        kind: Of a block, the same for blocks whose steps take about as long; 0 where nobody says.
        sent: Requests that were sent in this phase; likewise ``ended`` and, of their streams, ``chunks``.
    """

    at_s: float
    since_s: float
    phase: Phase
    is_alone: bool = True
    kind: int = 0
    sent: int = 0
    ended: int = 0
    chunks: int = 0

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return self.sent - self.ended

    def packed(self) -> bytes:
        """As it lies in the page."""
        numbers = (self.kind, self.sent, self.ended, self.chunks)
        return _PAGE.pack(self.at_s, self.since_s, _PHASES.index(self.phase), self.is_alone, *numbers)

    @staticmethod
    def unpacked(page: bytes) -> Beat:
        """What a page says. Raises struct.error when it is not whole."""
        at_s, since_s, phase, is_alone, kind, sent, ended, chunks = _PAGE.unpack(page)
        return Beat(
            at_s=at_s,
            since_s=since_s,
            phase=_PHASES[phase],
            is_alone=bool(is_alone),
            kind=kind,
            sent=sent,
            ended=ended,
            chunks=chunks,
        )

    @staticmethod
    def read(path: Path) -> Beat | None:
        """The last beat; None while there is none."""
        try:
            beat = Beat.unpacked(path.read_bytes())
        except (OSError, struct.error):
            return None
        return beat if beat.at_s > 0 else None


class Heartbeat:
    """Renews the beat of one engine, from a thread of its own, until this process ends.

    Args:
        path: The page's file, which is made here and removed by the reaper.
        progress: What the blocks of this process count.
        is_alone: See ``Beat``.
        each: Called after every beat.
    """

    def __init__(
        self, path: Path, progress: Progress, *, is_alone: bool = True, each: Callable[[], object] | None = None
    ) -> None:
        self._progress, self._is_alone, self._each = progress, is_alone, each
        path.write_bytes(bytes(_PAGE.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _PAGE.size)
        self._lock = threading.Lock()
        self._begin("idle")
        threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True).start()

    @contextmanager
    def during(self, phase: Phase, kind: int = 0) -> Iterator[None]:
        """A phase for as long as the body runs; before and after it the engine is idle. ``kind``: see ``Beat``."""
        self._begin(phase, kind)
        try:
            yield
        finally:
            self._begin("idle")

    def _begin(self, phase: Phase, kind: int = 0) -> None:
        with self._lock:
            progress = self._progress
            self._phase, self._kind, self._since_s = phase, kind, time.monotonic()
            self._before = (progress.sent, progress.ended, progress.chunks)
        self._renew()

    def _renew(self) -> None:
        with self._lock:
            sent, ended, chunks = self._before
            progress = self._progress
            beat = Beat(
                at_s=time.monotonic(),
                since_s=self._since_s,
                phase=self._phase,
                is_alone=self._is_alone,
                kind=self._kind,
                sent=progress.sent - sent,
                ended=progress.ended - ended,
                chunks=progress.chunks - chunks,
            )
            self._page[:] = beat.packed()

    def _keep_beating(self) -> None:
        while True:
            time.sleep(BEAT_EVERY_S)
            self._renew()
            if self._each is not None:
                self._each()
