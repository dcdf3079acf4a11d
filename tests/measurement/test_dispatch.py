from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import as_of_arrival, block_metrics, dispatch_slip, invalid_reason
from orchestrator.measurement.loadgen import LoadResult


def timeline(arrival: float, slip: float = 0.0, ttft: float = 0.1, error: str | None = None) -> RequestTimeline:
    send = arrival + slip
    return RequestTimeline(
        index=0,
        prompt_tokens=1,
        output_tokens=1,
        cached_tokens=0,
        arrival_s=arrival,
        send_s=send,
        first_token_s=None if error else send + ttft,
        end_s=None if error else send + ttft,
        token_times_s=[],
        output_token_ids=[],
        error=error,
    )


def result(requests: Sequence[RequestTimeline]) -> LoadResult:
    return LoadResult(
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        requests=requests,
        slip=dispatch_slip(requests, is_closed=False),
        lost=None,
    )


def test_slip_is_send_minus_arrival() -> None:
    slips = np.linspace(0, 0.001, 101)
    slip = dispatch_slip([timeline(i * 0.01, s) for i, s in enumerate(slips)], is_closed=False)
    assert slip is not None
    assert slip.p50_s == pytest.approx(0.0005)
    assert slip.p99_s == pytest.approx(0.00099)
    assert slip.max_s == pytest.approx(0.001)
    # 100 gaps in 1.001 s in place of 1 s.
    assert slip.rate_error == pytest.approx(1 / 1.001 - 1)


def test_what_was_not_sent_has_no_slip() -> None:
    sent = [timeline(0.0, 0.001), timeline(1.0, 0.001, error="timeout: no end")]
    never = [timeline(2.0, 5.0, error=error) for error in ("not_sent: gone", "connect: too many open files")]
    slip = dispatch_slip([*sent, *never], is_closed=False)
    assert slip is not None
    assert slip.max_s == pytest.approx(0.001)
    assert dispatch_slip([timeline(2.0, 5.0, error="not_sent: gone")], is_closed=False) is None


def test_there_is_no_rate_in_a_closed_loop_or_for_one_instant() -> None:
    for requests, is_closed in (([timeline(0.0), timeline(1.0)], True), ([timeline(0.0), timeline(0.0, 0.1)], False)):
        slip = dispatch_slip(requests, is_closed=is_closed)
        assert slip is not None
        assert slip.rate_error is None


def test_failures_are_counted_by_class() -> None:
    errors = ["timeout: a", "timeout: b", "http_503: c", None]
    assert result([timeline(0.0, error=error) for error in errors]).failures == {"timeout": 2, "http_503": 1}


def test_latency_from_the_arrival_holds_the_time_before_the_send() -> None:
    requests = [timeline(0.0, slip=0.3)]
    assert block_metrics(requests, 1.0)["mean_ttft_ms"] == pytest.approx(100)
    assert block_metrics(as_of_arrival(requests), 1.0)["mean_ttft_ms"] == pytest.approx(400)


@pytest.mark.parametrize(
    ("slip", "slo", "is_valid"),
    [(0.0019, None, True), (0.0021, None, False), (0.0021, 0.2, True), (0.0009, 0.04, False), (0.0007, 0.04, True)],
)
def test_a_block_is_invalid_when_the_generator_was_late(slip: float, slo: float | None, is_valid: bool) -> None:
    """2 % of a median TTFT of 100 ms is 2 ms; of an SLO of 200 ms 4 ms, of one of 40 ms 0.8 ms."""
    requests = [timeline(float(i), slip) for i in range(10)]
    reason = invalid_reason(requests, dispatch_slip(requests, is_closed=False), slo_s=slo)
    assert (reason is None) is is_valid
    if reason:
        assert f"p99 dispatch slip {slip * 1e3:.3f} ms" in reason


def test_a_block_in_which_nothing_ended_well_is_invalid() -> None:
    requests = [timeline(0.0, error="timeout: a")]
    slip = dispatch_slip(requests, is_closed=False)
    assert invalid_reason(requests, slip, slo_s=1.0) == "no request ended well"
