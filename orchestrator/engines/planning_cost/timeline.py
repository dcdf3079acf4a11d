"""A scheduler in virtual time: which step computes what, and when each token of each request comes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.engines.contract import RequestTimeline
from orchestrator.planning import Share
from orchestrator.workloads import Request, Schedule


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """The scheduler's, under vLLM's names; ``long_prefill_token_threshold`` 0 is off."""

    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int = 0


@dataclass(eq=False)
class _Flight:
    request: Request
    arrival_s: float
    computed: int = 0
    token_times_s: list[float] = field(default_factory=list)

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt.token_ids)

    @property
    def missing(self) -> int:
        """Tokens that a step could compute of it: the rest of the prompt, or one."""
        return max(self.prompt_len - self.computed, 1)

    @property
    def is_finished(self) -> bool:
        return len(self.token_times_s) >= self.request.prompt.output_len


def play(
    requests: Sequence[Request], schedule: Schedule, limits: StepLimits, seconds_of: Callable[[list[Share]], float]
) -> list[RequestTimeline]:
    """Serve the requests of a block step by step.

    The rules are those of ``orchestrator.planning.fcfs_steps``, with arrivals: running requests first, then waiting
    ones in the order of their arrival. The cache holds all of them, and shares no prefix. A request is sent when it is
    due; between steps nothing passes.

    Args:
        seconds_of: Duration of a step, above 0.

    Returns:
        One timeline for each request, in their order; token ids are not known and 0.
    """
    return _Play(requests, schedule, limits, seconds_of).run()


class _Play:
    def __init__(
        self, requests: Sequence[Request], schedule: Schedule, limits: StepLimits, seconds_of: Callable[..., float]
    ) -> None:
        self._requests, self._limits, self._seconds_of = requests, limits, seconds_of
        self._most_in_flight = schedule.concurrency or len(requests)
        times = schedule.times_of(len(requests))
        self._due = [(times[index], index) for index, one in enumerate(requests) if one.follows is None]
        heapq.heapify(self._due)
        self._flights: dict[int, _Flight] = {}
        self._waiting: list[int] = []
        self._running: list[int] = []
        self._now = 0.0

    def run(self) -> list[RequestTimeline]:
        while self._due or self._waiting or self._running:
            self._admit()
            if not self._waiting and not self._running:
                self._now = self._due[0][0]
                continue
            step = self._step()
            self._now += self._seconds_of(step)
            self._end(step)
        return [self._timeline(index) for index in range(len(self._requests))]

    def _admit(self) -> None:
        """Send what is due."""
        while self._due and len(self._waiting) + len(self._running) < self._most_in_flight:
            due, index = self._due[0]
            if due > self._now:
                return
            heapq.heappop(self._due)
            # In a closed loop the end of another request, a moment ago, is what made it due.
            is_released = self._most_in_flight < len(self._requests)
            self._flights[index] = _Flight(self._requests[index], self._now if is_released else due)
            self._waiting.append(index)

    def _step(self) -> list[Share]:
        limits, step = self._limits, []
        left = limits.max_num_batched_tokens
        is_alone = len(self._running) + len(self._waiting) == 1
        threshold = limits.long_prefill_token_threshold
        most = left if is_alone or not threshold else threshold
        room = limits.max_num_seqs - len(self._running)
        for index in (*self._running, *self._waiting[:room]):
            if left == 0:
                break
            flight = self._flights[index]
            tokens = min(flight.missing, most, left)
            step.append(Share(index, flight.computed, tokens))
            left -= tokens
        return step

    def _end(self, step: Sequence[Share]) -> None:
        for index, _, tokens in step:
            flight = self._flights[index]
            flight.computed += tokens
            if index in self._waiting:
                self._waiting.remove(index)
                self._running.append(index)
            if flight.computed >= flight.prompt_len:
                flight.token_times_s.append(self._now)
            if flight.is_finished:
                self._running.remove(index)
                for other, one in enumerate(self._requests):
                    if one.follows == index:
                        heapq.heappush(self._due, (self._now + one.think_s, other))

    def _timeline(self, index: int) -> RequestTimeline:
        flight = self._flights[index]
        output = flight.request.prompt.output_len
        return RequestTimeline(
            index=index,
            prompt_tokens=flight.prompt_len,
            output_tokens=output,
            cached_tokens=0,
            arrival_s=flight.arrival_s,
            send_s=flight.arrival_s,
            first_token_s=flight.token_times_s[0],
            end_s=flight.token_times_s[-1],
            token_times_s=tuple(flight.token_times_s),
            output_token_ids=(0,) * output,
        )
