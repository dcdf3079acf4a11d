"""The schedule of a block, and what every arrival process can do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Section
from orchestrator.workloads.tokens import Stream, generator


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When each request of a block is due.

    Attributes:
        times_s: Seconds from the start of the block, one for each request in their order; None for all at 0, as in a
            closed loop. A request that follows another is due after that one's end, and its time here is 0.
        concurrency: Requests in flight in a closed loop; None in an open loop, where no request waits for another.
    """

    times_s: Sequence[float] | None = None
    concurrency: int | None = None

    def times_of(self, count: int) -> Sequence[float]:
        """The times of ``count`` requests. Raises ValueError if the schedule is for another number of them."""
        if self.times_s is None:
            return [0.0] * count
        if len(self.times_s) != count:
            raise ValueError(f"{count} requests and {len(self.times_s)} times: need one time for each")
        return self.times_s

    @property
    def is_closed(self) -> bool:
        return self.concurrency is not None


class ArrivalKind(Section):
    """An arrival process. Of a conversation only the first request arrives by it; a rate counts conversations then."""

    def schedule(self, requests: Sequence[Request], seed: Sequence[int]) -> Schedule:
        """The times of one block.

        Args:
            seed: Numbers that name the block; equal numbers give equal times.

        Raises:
            UserError: The requests do not have what the process needs.
        """
        starts = [index for index, request in enumerate(requests) if request.follows is None]
        times = [0.0] * len(requests)
        drawn = self._times([requests[index] for index in starts], generator(seed, Stream.ARRIVALS))
        for index, time_s in zip(starts, drawn, strict=True):
            times[index] = time_s
        return Schedule(times_s=times, concurrency=self._concurrency())

    @abstractmethod
    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        """Seconds from the start of the block, one for each request that follows no other."""

    def _concurrency(self) -> int | None:
        return None


def from_gaps(gaps: np.ndarray, rate: float) -> list[float]:
    """Arrival times from the gaps before each of them, rescaled so that the last is exactly ``len(gaps) / rate``.

    Unscaled sums miss the rate by a share of about one over the root of the number of requests, which would be read as
    a difference between two blocks. ``vllm bench serve`` rescales in the same way. For Poisson arrivals this is the
    process under the condition that its last arrival falls there.
    """
    sums = np.cumsum(gaps)
    if sums[-1] == 0.0:
        # Every gap of a very bursty draw may round to nothing; then all arrive together, at the end.
        return [len(gaps) / rate] * len(gaps)
    times: list[float] = (sums / sums[-1] * (len(gaps) / rate)).tolist()
    return times
