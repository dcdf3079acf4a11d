"""A fixed number of users, each of whom waits for an answer before the next request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.workloads.arrivals.base import ArrivalKind
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count


class ClosedLoop(ArrivalKind):
    """``concurrency`` requests are in flight; the end of one releases the next.

    A slow server is sent fewer requests, so its latencies look better than those that an outside world would see.
    """

    kind: Literal["closed_loop"] = "closed_loop"
    concurrency: Count

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        return [0.0] * len(requests)

    def _concurrency(self) -> int | None:
        return self.concurrency
