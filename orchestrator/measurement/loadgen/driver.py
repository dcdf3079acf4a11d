"""Send the requests of a block when they are due, and see every one of them to its end."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
import socket
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.engines import StopRule
from orchestrator.engines.streaming import STOP_EVERY_S
from orchestrator.engines.timer import Timer, clock, make_timer
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.dispatch import dispatch_slip
from orchestrator.measurement.loadgen.answer import Answer
from orchestrator.measurement.loadgen.connection import Connection
from orchestrator.measurement.loadgen.pool import ConnectionPool
from orchestrator.measurement.loadgen.result import LoadResult, gone
from orchestrator.measurement.loadgen.target import Target
from orchestrator.workloads import Request, Schedule

HEAD_START_S = 0.02
"""From the last preparation until time 0, so that the first request is not late."""

_TICK_S = 0.01
"""How often time-outs and connections are looked at."""

_FIRST_S = 0.2
"""Connections for the requests of so many seconds are opened before the block begins."""

_LOOK_AHEAD_S = 0.1
"""Later on, connections are opened so long before the requests that need them."""

_ENDED_EARLY = "the block was ended early"


class Driver:
    """One block. ``run`` may be called once.

    The loop is open unless the schedule says otherwise: a request is sent at its time, whatever has become of those
    before it. Time-outs are exact to 10 ms.

    Args:
        name: Put in front of the ids of the requests.
        stop: Asked every ``STOP_EVERY_S``; what it says ends the block.
    """

    def __init__(
        self, target: Target, requests: Sequence[Request], schedule: Schedule, name: str, stop: StopRule | None = None
    ) -> None:
        self._target, self._requests, self._stop = target, requests, stop
        self._is_open = schedule.concurrency is None
        self._slots = schedule.concurrency or 0
        self._answers = [
            Answer(index, request.prompt, target.encode(request.prompt, f"{name}-{index}"))
            for index, request in enumerate(requests)
        ]
        starts = [index for index, request in enumerate(requests) if request.follows is None]
        times = schedule.times_of(len(requests))
        self._starts = deque(sorted((times[index], index) for index in starts))
        self._follow_ups: list[tuple[float, int]] = []
        self._followers: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            if request.follows is not None:
                self._followers.setdefault(request.follows, []).append(index)
        self._free: deque[float] = deque()
        self._waiting: deque[Answer] = deque()
        self._flying: dict[Answer, Connection] = {}
        self._left = len(requests)
        self._lost: str | None = None
        self._stopped: str | None = None
        self._begin = 0.0
        self._looked = 0.0
        self._next = float("inf")
        self._ticks: asyncio.TimerHandle | None = None
        self._timer: Timer
        self._pool: ConnectionPool
        self._ended: asyncio.Future[None]

    async def run(self) -> LoadResult:
        """Raises ChunksmithError if the server cannot be reached at all."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        loop.set_exception_handler(self._on_own_error)
        self._pool = ConnectionPool(self._target, self, on_open=self._serve_waiting, on_error=self._on_connect_error)
        self._timer = make_timer(loop, self._dispatch)
        # The schedule still counts from 0 here.
        first = sum(due <= _FIRST_S for due, _ in self._starts)
        try:
            try:
                await self._pool.fill(max(1, first if self._is_open else min(first, self._slots)))
            except OSError as error:
                raise ChunksmithError(f"{self._target.url}: cannot be reached: {_reason(error)}") from error
            begin = self._begin = self._looked = clock() + HEAD_START_S
            started_at = datetime.now(UTC) + timedelta(seconds=HEAD_START_S)
            self._starts = deque((begin + time_s, index) for time_s, index in self._starts)
            self._free.extend([begin] * self._slots)
            self._arm()
            self._tick()
            await self._ended
            duration_s = clock() - begin
        finally:
            if self._ticks is not None:
                self._ticks.cancel()
            self._timer.close()
            await self._pool.close()
        timelines = [answer.timeline(begin) for answer in self._answers]
        return LoadResult(
            started_at=started_at,
            duration_s=duration_s,
            requests=timelines,
            slip=dispatch_slip(timelines, is_closed=not self._is_open),
            lost=self._lost,
            stopped=self._stopped,
        )

    # Called by connections.

    def on_data(self) -> None:
        """Send what is due."""
        if clock() >= self._next:
            self._dispatch()

    def on_end(self, connection: Connection, answer: Answer, now: float) -> None:
        del self._flying[answer]
        self._pool.release(connection)
        self._serve_waiting()
        self._settle(answer, now)

    def on_lost(self, connection: Connection) -> None:
        self._pool.forget(connection)

    # What is due, and when.

    def _due_soon(self) -> int:
        """Number of requests that the schedule has due soon."""
        end = clock() + _LOOK_AHEAD_S
        return sum(1 for _ in itertools.takewhile(lambda start: start[0] <= end, self._starts))

    def _arm(self) -> None:
        """Wake up at the next thing that time alone makes possible."""
        self._next = float("inf")
        if self._is_open or self._free:
            slot = 0.0 if self._is_open else self._free[0]
            due = [queue[0][0] for queue in (self._starts, self._follow_ups) if queue]
            self._next = max(min(due), slot) if due else self._next
        if self._next < float("inf"):
            self._timer.arm(self._next)

    def _dispatch(self) -> None:
        """Send what is due and see to the next wake-up, also when it was called for nothing."""
        while self._is_open or self._free:
            now = clock()
            # A conversation that has begun goes before one that has not.
            if self._follow_ups and self._follow_ups[0][0] <= now:
                due, index = heapq.heappop(self._follow_ups)
            elif self._starts and self._starts[0][0] <= now:
                due, index = self._starts.popleft()
            else:
                break
            answer = self._answers[index]
            answer.arrival = due if self._is_open else max(due, self._free.popleft())
            if (connection := self._pool.take()) is None:
                self._waiting.append(answer)
            else:
                self._send(connection, answer)
        self._pool.open_more(len(self._waiting))
        self._arm()

    def _send(self, connection: Connection, answer: Answer) -> None:
        self._flying[answer] = connection
        connection.send(answer)

    def _settle(self, answer: Answer, now: float, *, had_slot: bool = True) -> None:
        """One request is over: release what waited for it."""
        answer.end = now
        self._left -= 1
        if had_slot and not self._is_open:
            self._free.append(now)
        for index in self._followers.get(answer.index, ()):
            if answer.error is None and self._lost is None:
                heapq.heappush(self._follow_ups, (now + self._requests[index].think_s, index))
            else:
                why = _ENDED_EARLY if self._stopped else "the request before it in the conversation failed"
                self._give_up(index, now, why)
        if self._left == 0 and not self._ended.done():
            self._ended.set_result(None)
        elif self._starts or self._follow_ups:
            self._dispatch()

    # What goes wrong.

    def _give_up(self, index: int, arrival: float, why: str) -> None:
        answer = self._answers[index]
        answer.arrival = arrival
        answer.fail("not_sent", why)
        self._settle(answer, clock(), had_slot=False)

    def _serve_waiting(self) -> None:
        while self._waiting and (connection := self._pool.take()) is not None:
            self._send(connection, self._waiting.popleft())

    def _on_connect_error(self, error: OSError) -> None:
        text = _reason(error)
        if isinstance(error, ConnectionRefusedError):
            self._lose(text)
        elif self._waiting:
            answer = self._waiting.popleft()
            answer.fail("connect", text)
            self._settle(answer, clock())

    def _lose(self, why: str) -> None:
        """Nothing listens any more: send no further request, and wait for those under way."""
        if self._lost is not None:
            return
        self._lost = gone(why)
        self._send_no_more(("connect", why), "the server is gone")

    def _send_no_more(self, waiting_for_connection: tuple[str, str], why_not_sent: str) -> None:
        """Give up what has not been sent, and say why of both kinds."""
        queued = [*self._starts, *self._follow_ups]
        waiting = list(self._waiting)
        self._starts.clear()
        self._follow_ups.clear()
        self._waiting.clear()
        for answer in waiting:
            answer.fail(*waiting_for_connection)
            self._settle(answer, clock())
        for due, index in queued:
            self._give_up(index, due, why_not_sent)

    def _ask(self, stop: StopRule) -> None:
        """Tell the rule what is known of the requests that were sent, and end the block if it says so."""
        self._looked = clock()
        sent = [answer for answer in self._answers if answer.send is not None]
        if not sent or self._lost is not None or self._left == 0:
            return

        def since(time: float | None) -> float:
            return math.nan if time is None else time - self._begin

        why = stop(
            [since(answer.send) for answer in sent],
            [since(answer.first) for answer in sent],
            [since(answer.end) for answer in sent],
            since(self._looked),
        )
        if why is None:
            return
        self._stopped = why
        self._send_no_more(("not_sent", _ENDED_EARLY), _ENDED_EARLY)
        for connection in list(self._flying.values()):
            connection.fail("cancelled", _ENDED_EARLY)

    def _tick(self) -> None:
        self._ticks = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        limit = clock() - self._target.timeout_s
        late = []
        # In the order of their sends.
        for answer, connection in self._flying.items():
            if answer.send is None or answer.send > limit:
                break
            late.append(connection)
        for connection in late:
            connection.fail("timeout", f"no end after {self._target.timeout_s:g} s")
        self._pool.drop_stale()
        if self._lost is None:
            self._pool.open_more(len(self._waiting), self._due_soon() if self._is_open else 0)
        if self._stop is not None and clock() >= self._looked + STOP_EVERY_S:
            self._ask(self._stop)

    def _on_own_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback of ours ends the block; asyncio alone would log it and go on."""
        error = context.get("exception")
        if error is None or self._ended.done():
            loop.default_exception_handler(context)
        else:
            self._ended.set_exception(error)


def _reason(error: OSError) -> str:
    """asyncio words its errors in its own way and knows no word for a time-out."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    return os.strerror(error.errno) if error.errno else str(error) or "timed out"
