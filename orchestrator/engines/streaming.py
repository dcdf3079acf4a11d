"""Send the requests of a block to a streaming generator when they are due, and keep the raw timestamps."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.engines.contract import EngineError, RequestTimeline, StopRule
from orchestrator.engines.progress import PROGRESS
from orchestrator.engines.timer import clock, make_timer
from orchestrator.workloads import Prompt, Request, Schedule

STOP_EVERY_S = 1.0
"""How often a rule that may end the block early is asked."""


@dataclass(frozen=True)
class StreamChunk:
    """What one chunk of a stream brought: new tokens, and how much of the prompt came from the prefix cache."""

    token_ids: Sequence[int]
    top2_gaps: Sequence[float] | None
    cached_tokens: int


Stream = Callable[[int, Prompt], AsyncIterator[StreamChunk]]
"""Starts one request (index, prompt) and yields its chunks. It may raise RequestFailed for that request alone."""


class RequestFailed(Exception):
    """One request failed; the engine lives on."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What a block gave: one timeline for each request in order, seconds until the last had ended, and why it was
    ended early, if it was."""

    timelines: list[RequestTimeline]
    duration_s: float
    stopped: str | None


async def drive(
    stream: Stream, requests: Sequence[Request], schedule: Schedule, *, stop: StopRule | None = None
) -> Driven:
    """Serve all requests of a block.

    In an open loop a request is sent at its time, whatever has become of those before it; in a closed loop the end of
    one releases the next. A request that follows another waits for that one's end, and goes before one that begins a
    conversation. A request is sent within about 0.1 ms of its time while the event loop has nothing else to do.

    Args:
        stop: Asked every second; a text ends the block. What had not ended then has an error.

    Raises:
        EngineError: Raised by the stream: it ends the block. ``partial`` then holds all timelines.
        Exception: Any other error of the stream; the requests in flight are cancelled.
    """
    return await _Block(stream, requests, schedule).run(stop)


@dataclass
class _Flight:
    """One request from its arrival on."""

    request: Request
    index: int
    arrival_s: float = 0.0
    send_s: float | None = None
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    gaps: list[float] | None = None
    cached: int = 0
    error: str | None = None
    ended: bool = False

    def timeline(self) -> RequestTimeline:
        ended_well = self.ended and self.error is None
        return RequestTimeline(
            index=self.index,
            prompt_tokens=len(self.request.prompt.token_ids),
            output_tokens=len(self.tokens),
            cached_tokens=self.cached,
            arrival_s=self.arrival_s,
            send_s=self.arrival_s if self.send_s is None else self.send_s,
            first_token_s=self.times_s[0] if self.times_s else None,
            end_s=self.times_s[-1] if self.times_s and ended_well else None,
            token_times_s=self.times_s,
            output_token_ids=self.tokens,
            top2_gaps=self.gaps,
            error=self.error,
        )


class _Block:
    def __init__(self, stream: Stream, requests: Sequence[Request], schedule: Schedule) -> None:
        self._stream = stream
        self._flights = [_Flight(request, index) for index, request in enumerate(requests)]
        times = schedule.times_of(len(requests))
        # (time, index) of what time alone releases: first requests, and follow-ups whose predecessor has ended.
        self._starts = [(times[i], i) for i, request in enumerate(requests) if request.follows is None]
        heapq.heapify(self._starts)
        self._follow_ups: list[tuple[float, int]] = []
        self._followers: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            if request.follows is not None:
                self._followers.setdefault(request.follows, []).append(index)
        # In a closed loop: when each free slot became free.
        self._slots = None if schedule.concurrency is None else [0.0] * schedule.concurrency
        self._tasks: dict[asyncio.Task[None], _Flight] = {}
        self._left = len(requests)
        self._wake = asyncio.Event()
        self._fatal: BaseException | None = None
        self._is_over = False
        self._begin = 0.0

    async def run(self, stop: StopRule | None) -> Driven:
        loop = asyncio.get_running_loop()
        timer = make_timer(loop, self._wake.set)
        self._begin = clock()
        stopped: str | None = None
        looked_s = 0.0
        try:
            while self._left and self._fatal is None and stopped is None:
                self._wake.clear()
                due = self._dispatch()
                if stop is not None:
                    due = min(due, looked_s + STOP_EVERY_S)
                if due < math.inf:
                    timer.arm(self._begin + due)
                await self._wake.wait()
                if stop is not None and self._now() >= looked_s + STOP_EVERY_S:
                    looked_s = self._now()
                    stopped = self._judge(stop)
        finally:
            timer.close()
            await self._cancel_all("the block was ended early")
        if self._fatal is not None:
            if isinstance(self._fatal, EngineError):
                self._fatal.partial = self._timelines()
            raise self._fatal
        return Driven(timelines=self._timelines(), duration_s=self._now(), stopped=stopped)

    def _now(self) -> float:
        return clock() - self._begin

    def _timelines(self) -> list[RequestTimeline]:
        return [flight.timeline() for flight in self._flights]

    def _dispatch(self) -> float:
        """Send what is due; return the time of what is due next, infinite if only an end can release more."""
        while self._slots is None or self._slots:
            queue = self._follow_ups if self._follow_ups and self._follow_ups[0][0] <= self._now() else self._starts
            if not queue:
                break
            due, index = queue[0]
            if due > self._now():
                break
            heapq.heappop(queue)
            flight = self._flights[index]
            flight.arrival_s = due if self._slots is None else max(due, heapq.heappop(self._slots))
            self._send(flight)
        else:
            return math.inf
        return min((queue[0][0] for queue in (self._starts, self._follow_ups) if queue), default=math.inf)

    def _send(self, flight: _Flight) -> None:
        task = asyncio.create_task(self._follow(flight))
        PROGRESS.sent += 1
        self._tasks[task] = flight
        task.add_done_callback(self._on_done)

    async def _follow(self, flight: _Flight) -> None:
        prompt = flight.request.prompt
        flight.send_s = self._now()
        try:
            async for chunk in self._stream(flight.index, prompt):
                flight.times_s.append(self._now())
                PROGRESS.chunks += 1
                flight.tokens.extend(chunk.token_ids)
                flight.cached = chunk.cached_tokens
                if chunk.top2_gaps is not None:
                    flight.gaps = [*(flight.gaps or []), *chunk.top2_gaps]
        except RequestFailed as failure:
            flight.error = str(failure)
        else:
            if len(flight.tokens) < prompt.output_len:
                flight.error = f"short: {len(flight.tokens)} of {prompt.output_len} tokens"

    def _on_done(self, task: asyncio.Task[None]) -> None:
        flight = self._tasks.pop(task)
        PROGRESS.ended += 1
        self._wake.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            flight.error = f"engine: {error}"
            self._fatal, self._is_over = self._fatal or error, True
            return
        now = flight.times_s[-1] if flight.times_s and flight.error is None else self._now()
        flight.ended = True
        if self._slots is not None:
            heapq.heappush(self._slots, now)
        self._settle(flight, now)
        if not self._is_over:
            # Here already, and not when the block's own task wakes up: what was released is due now.
            self._dispatch()

    def _settle(self, flight: _Flight, now: float) -> None:
        self._left -= 1
        for index in self._followers.get(flight.index, ()):
            follower = self._flights[index]
            if flight.error is None:
                heapq.heappush(self._follow_ups, (now + follower.request.think_s, index))
            else:
                follower.arrival_s = now
                follower.error = "not_sent: the request before it in the conversation failed"
                self._settle(follower, now)

    def _judge(self, stop: StopRule) -> str | None:
        sent = [flight for flight in self._flights if flight.send_s is not None]
        if not sent:
            return None
        firsts = [flight.times_s[0] if flight.times_s else math.nan for flight in sent]
        ends = [flight.times_s[-1] if flight.ended and flight.times_s else math.nan for flight in sent]
        return stop([flight.send_s or 0.0 for flight in sent], firsts, ends, self._now())

    async def _cancel_all(self, why: str) -> None:
        """Cancel what is in flight. What was never sent is told apart by its error."""
        self._is_over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        for flight in self._flights:
            if not flight.ended and flight.error is None:
                flight.error = f"{'cancelled' if flight.send_s is not None else 'not_sent'}: {why}"
