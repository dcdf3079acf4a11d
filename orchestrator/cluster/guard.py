"""Takes the samples of one engine for its watchdog, and writes down what it says.

Imports the standard library alone, because the reaper does it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.cluster import gpus
from orchestrator.cluster.heartbeat import Beat
from orchestrator.cluster.vitals import ProcessorTime, threads_at_work, vitals
from orchestrator.cluster.watchdog import LATE_S, MARK, Sample, Watchdog

_LOOKS = 4
"""A thread is at work that is found so in so many looks in a row. On a crowded machine any thread that wakes for a
moment, as those of Ray do, is found waiting for a processor now and then."""


class Guard:
    """The watchdog of an engine on this machine. It speaks once.

    Args:
        owner_pid: The process that renews the heartbeat.
        beat_path: Where it does.
        steps_path: Where the engine's scheduler counts its steps.
        silence_s: See ``Watchdog``.
        own_gpus: Those of the engine.
    """

    def __init__(
        self, owner_pid: int, beat_path: Path, steps_path: Path, silence_s: float, own_gpus: Sequence[str]
    ) -> None:
        self._owner_pid, self._gpus = owner_pid, own_gpus
        self._beat_path, self._steps_path = beat_path, steps_path
        self._pids = {owner_pid}
        self._time, self._owner_time = ProcessorTime(), ProcessorTime()
        self._watchdog = Watchdog(silence_s, self._are_threads_at_work, lambda: gpus.are_at_work(self._gpus))
        self._has_spoken = False
        self._found: list[set[int]] = []
        self._asked_s = 0.0

    def look(self, pids: Collection[int]) -> str | None:
        """Why the engine, which has these processes and its owner, is hung; None while it is not."""
        if self._has_spoken:
            return None
        self._pids = {self._owner_pid, *pids}
        found = [one for one in map(vitals, self._pids) if one is not None]
        sample = Sample(
            at_s=time.monotonic(),
            beat=Beat.read(self._beat_path),
            steps=self._steps(),
            stopped={one.pid: one.name for one in found if one.is_stopped},
            processes=len(found),
            cpu_s=self._time.add(found),
            owner_cpu_s=self._owner_time.add(one for one in found if one.pid == self._owner_pid),
        )
        why = self._watchdog.look(sample)
        self._has_spoken = why is not None
        return why

    def _steps(self) -> bytes:
        try:
            return self._steps_path.read_bytes()
        except OSError:
            return b""

    def _are_threads_at_work(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._asked_s > LATE_S:
            self._found.clear()
        self._asked_s = now_s
        self._found = [*self._found, threads_at_work(self._pids)][-_LOOKS:]
        if len(self._found) < _LOOKS:
            return True
        return bool(set.intersection(*self._found))


def note_verdict(log_path: str, engine_id: str, why: str) -> None:
    """Say it in the engine's log, if it has one. A full disk must not keep the engine alive."""
    if log_path:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError), Path(log_path).open("a", encoding="utf-8") as log:
            log.write(f"\n{now} {engine_id} {MARK}{why}\n")


def verdict_of(lines: Sequence[str]) -> str | None:
    """The watchdog's verdict in an engine's log; None if there is none."""
    return next((line.partition(MARK)[2].strip() for line in reversed(lines) if MARK in line), None)
