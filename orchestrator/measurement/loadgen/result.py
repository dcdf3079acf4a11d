"""What a block of load was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.engines import RequestTimeline
from orchestrator.measurement.dispatch import DispatchSlip, count_failures


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """One block.

    Attributes:
        started_at: Time 0 of the timelines.
        duration_s: Seconds until the last request had ended.
        requests: One timeline for each request, in their order. ``arrival_s`` is the intended arrival: from the
            schedule in an open loop, else when an answer's end released it. ``error`` begins with its class:
            ``connect``, ``disconnect``, ``timeout``, ``http_<status>``, ``server_error`` (inside the stream),
            ``bad_answer``, ``short`` (fewer tokens than asked for), ``not_sent``, or ``cancelled`` by the stop rule.
        slip: None when nothing was sent.
        lost: Why the block was given up, where the server was gone; requests that had ended are kept.
        stopped: Why the stop rule ended the block before its last request; None if it did not.
    """

    started_at: datetime
    duration_s: float
    requests: Sequence[RequestTimeline]
    slip: DispatchSlip | None
    lost: str | None
    stopped: str | None = None

    @property
    def failures(self) -> Mapping[str, int]:
        """Number of failed requests by their class."""
        return count_failures(self.requests)


def gone(why: str) -> str:
    """What ``lost`` says."""
    return f"the server is gone: {why}"
