"""The thread that stands between the slots and the desk: it records what they have measured while they go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Condition
from typing import Final, NamedTuple

from orchestrator.sweep.desk import Desk
from orchestrator.sweep.trial import Job, Measured

_REST: Final = 1
_LONG_REST: Final = 9
"""How long the scribe rests after it has recorded, as a multiple of the time that this took. Long while enough trials
lie ready: then nobody waits for it, and what comes together costs little more than one."""

_MOST_REST_S: Final = 1.0
"""A storage that was away made it long, and is no reason to let what has been measured lie."""


class _Ended(NamedTuple):
    job: Job
    measured: Measured
    at_s: float
    told: Future[None]


class Scribe:
    """Hands in at the desk, in one thread, all that has come together at a time, and asks for trials ahead.

    It rests between, for the slots share the interpreter with it, unless one of them waits.

    Args:
        thread: Of one worker.
        size: Gives the number of slots.
        is_ahead: Whether a trial for each slot is to lie ready.

    Attributes:
        takes_s: Seconds from a trial's end until it is told, as a moving average.
    """

    def __init__(self, thread: Executor, desk: Desk, size: Callable[[], int], *, is_ahead: bool) -> None:
        self._thread, self._desk, self._size, self._is_ahead = thread, desk, size, is_ahead
        self._changed = Condition()
        self._ended: list[_Ended] = []
        self._is_due, self._waiting = False, 0
        self._rests_until_s = 0.0
        self.takes_s = 0.0

    def begin(self) -> None:
        """A slot has begun a trial."""
        if self._is_ahead:
            self._wake()

    def hand_in(self, job: Job, measured: Measured) -> Future[None]:
        """A trial has ended. What is returned is done once it was recorded and told; see ``wait``."""
        told: Future[None] = Future()
        self._wake(_Ended(job, measured, time.monotonic(), told))
        return told

    def wait(self, told: Future[None]) -> None:
        """Wait until a trial was recorded and told.

        Raises:
            BaseException: What kept it from that.
        """
        if told.done():
            told.result()
            return
        with self._changed:
            self._waiting += 1
            self._changed.notify()
        try:
            told.result()
        finally:
            with self._changed:
                self._waiting -= 1

    def _wake(self, *ended: _Ended) -> None:
        with self._changed:
            self._ended.extend(ended)
            if self._is_due:
                return
            self._is_due = True
        self._thread.submit(self._work)

    def _work(self) -> None:
        with self._changed:
            if self._size() > 1:
                self._changed.wait_for(lambda: self._waiting, max(self._rests_until_s - time.monotonic(), 0.0))
            self._is_due = False
            ended, self._ended = self._ended, []
        begun = time.monotonic()
        if ended:
            self._record(ended)
        took_s = time.monotonic() - begun
        # What goes wrong there, whoever comes to the desk is told.
        is_ready = self._is_ahead and self._desk.prepare(self._size())
        if ended:
            rest_s = min((_LONG_REST if is_ready else _REST) * took_s, _MOST_REST_S)
            self._rests_until_s = time.monotonic() + rest_s

    def _record(self, ended: list[_Ended]) -> None:
        try:
            self._desk.hand_in({one.job: one.measured for one in ended})
        except BaseException as error:
            for one in ended:
                one.told.set_exception(error)
            raise
        now = time.monotonic()
        for one in ended:
            self.takes_s += 0.2 * (now - one.at_s - self.takes_s)
            one.told.set_result(None)
