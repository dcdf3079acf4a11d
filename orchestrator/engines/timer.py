"""Wake an event loop at an absolute time, to a few tens of microseconds.

The timers of asyncio wait in whole milliseconds, which at 1,000 requests a second is the gap between two of them. On
Linux a ``timerfd`` is used: the kernel makes it readable at the deadline, which wakes the loop like any socket does.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)

clock = time.perf_counter
"""The clock of all timestamps here, in seconds. On Linux it is CLOCK_MONOTONIC, the same for all processes."""


class Timer(Protocol):
    """Calls back once at a deadline."""

    def arm(self, deadline: float) -> None:
        """Call back at ``clock() == deadline``, at once if that has passed. Replaces the deadline before it."""

    def close(self) -> None:
        """Never call back again, and free everything."""


def make_timer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Timer:
    """The most precise timer of this machine."""
    return _TimerFd(loop, callback) if sys.platform == "linux" else _LoopTimer(loop, callback)


class _TimeSpec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _TimeSpec), ("value", _TimeSpec)]


class _TimerFd:
    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        # os.timerfd_create came with Python 3.13.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop, self._callback = loop, callback
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._fire)

    def arm(self, deadline: float) -> None:
        # A time of exactly 0 would disarm it; 1 ns has long passed.
        nanoseconds = max(int(deadline * 1e9), 1)
        spec = _TimerSpec(value=_TimeSpec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000))
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            # It was armed again between the wake-up and this call.
            return
        self._callback()


class _LoopTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, deadline: float) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0.0, deadline - clock()), self._callback)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
