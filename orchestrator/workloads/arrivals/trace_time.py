"""The times that a trace or a preset gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.errors import UserError
from orchestrator.workloads.arrivals.base import ArrivalKind
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Positive


class TraceTime(ArrivalKind):
    """Requests are due at their own times, divided by ``speed``: 2 replays a trace in half its time."""

    kind: Literal["trace_time"] = "trace_time"
    speed: Positive = 1.0

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        times = [request.at_s for request in requests if request.at_s is not None]
        if len(times) != len(requests):
            raise UserError(
                "arrivals.kind: trace_time needs requests with times of their own: a workload of kind trace, "
                "burst_behind_giant or chunked_steps"
            )
        return [time_s / self.speed for time_s in times]
