"""What Linux says of a process: whether it runs, is stopped or is gone, and how much processor time it has used.

Imports the standard library alone, because the reaper reads it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

STOPPED = "Tt"
"""States of a process that a signal or a debugger has stopped."""

_AT_WORK = "RD"
"""States of a thread that wants a processor, or waits for a disk or a driver without a way to interrupt it."""


@dataclass(frozen=True)
class Vitals:
    """One live process, by ``/proc/PID/stat``.

    Attributes:
        start: When it was started, in clock ticks since the machine's start. Unlike a time of day it is the same
            whatever the clock does, and tells a process from a later one that was given the same pid.
        state: Linux's letter.
        cpu_s: Seconds of processor time that its threads have used, its children's not included.
    """

    pid: int
    start: int
    name: str
    state: str
    cpu_s: float

    @property
    def is_stopped(self) -> bool:
        """Whether it goes on only when another process says so."""
        return self.state in STOPPED


def vitals(pid: int) -> Vitals | None:
    """The vitals of a process; None when there is none, or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in brackets, which may hold anything.
    head, _, tail = text.rpartition(")")
    state, *fields = tail.split()
    if state in "ZX":
        return None
    user, system, start = (int(fields[number]) for number in (10, 11, 18))
    return Vitals(pid, start, head.partition("(")[2], state, (user + system) / _TICKS_PER_S)


def time_of_day(start: int) -> float:
    """When a process was started, see ``Vitals``, in seconds since 1970 by the clock as it goes now."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + start / _TICKS_PER_S


def threads_at_work(pids: Iterable[int]) -> set[int]:
    """The threads of these processes that run, want to, or wait for a disk or a driver right now."""
    found = set()
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                state = task.read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if state in _AT_WORK:
                found.add(int(task.parent.name))
    return found


class ProcessorTime:
    """Adds up what processes use while they come and go."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], float] = {}
        self.total_s = 0.0

    def add(self, found: Iterable[Vitals]) -> float:
        """Take in what the processes have used since they were last seen; return the sum of all, in seconds."""
        now = {(one.pid, one.start): one.cpu_s for one in found}
        self.total_s += sum(max(0.0, used - self._last.get(process, 0.0)) for process, used in now.items())
        self._last = now
        return self.total_s
