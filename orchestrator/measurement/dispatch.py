"""Whether the load generator itself was on time, and what its lateness would have hidden."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.engines import RequestTimeline

MAX_SLIP_SHARE = 0.02
"""A block whose p99 dispatch slip exceeds this share of the SLO, or of the median TTFT, is invalid."""


@dataclass(frozen=True, kw_only=True)
class DispatchSlip:
    """How late the requests were sent: send minus intended arrival, in seconds. What was never sent does not count.

    Attributes:
        rate_error: Achieved over intended rate, minus 1, from the first to the last send; None in a closed loop, or for
            fewer than two different arrivals.
    """

    p50_s: float
    p99_s: float
    max_s: float
    rate_error: float | None


def dispatch_slip(requests: Sequence[RequestTimeline], *, is_closed: bool) -> DispatchSlip | None:
    """The slip of the requests that were sent; None if none was."""
    sent = [request for request in requests if error_class(request) not in ("not_sent", "connect")]
    if not sent:
        return None
    arrivals = np.array([request.arrival_s for request in sent])
    sends = np.array([request.send_s for request in sent])
    slips = sends - arrivals
    p50, p99 = np.percentile(slips, [50, 99])
    error = None if is_closed or np.ptp(arrivals) == 0 else float(np.ptp(arrivals) / np.ptp(sends) - 1)
    return DispatchSlip(p50_s=float(p50), p99_s=float(p99), max_s=float(slips.max()), rate_error=error)


def error_class(request: RequestTimeline) -> str | None:
    """Class of a request's error: the word in front of its colon. None for a request that ended well."""
    return None if request.error is None else request.error.partition(":")[0]


def count_failures(requests: Sequence[RequestTimeline]) -> dict[str, int]:
    """Number of failed requests by the class of their error."""
    return dict(Counter(label for request in requests if (label := error_class(request)) is not None))


def as_of_arrival(requests: Sequence[RequestTimeline]) -> list[RequestTimeline]:
    """The same timelines with every send moved to the intended arrival.

    Metrics computed from them hold what a user outside would have waited, also for the time in which the generator
    could not send: they do not suffer from coordinated omission.
    """
    return [dataclasses.replace(request, send_s=request.arrival_s) for request in requests]


def invalid_reason(
    requests: Sequence[RequestTimeline], slip: DispatchSlip | None, *, slo_s: float | None = None
) -> str | None:
    """Why a block says nothing about the server; None for a valid block.

    Args:
        requests: All timelines of the block.
        slip: Of the same requests.
        slo_s: The strictest SLO on a latency, in seconds; None compares with the median TTFT.
    """
    ttfts = [r.first_token_s - r.send_s for r in requests if r.error is None and r.first_token_s is not None]
    if slip is None or not ttfts:
        return "no request ended well"
    if slo_s is None:
        limit, name = MAX_SLIP_SHARE * float(np.median(ttfts)), "median TTFT"
    else:
        limit, name = MAX_SLIP_SHARE * slo_s, "SLO"
    if slip.p99_s <= limit:
        return None
    return (
        f"the load generator was late: p99 dispatch slip {slip.p99_s * 1e3:.3f} ms is above "
        f"{limit * 1e3:.3f} ms, {MAX_SLIP_SHARE:.0%} of the {name}"
    )
