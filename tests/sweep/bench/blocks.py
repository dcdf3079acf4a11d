"""Blocks and engines for the tests of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.engines import BlockResult, Counters, InForce, RequestTimeline
from orchestrator.measurement import BlockOutcome, MeasuredBlock, Slo, block_metrics, dispatch_slip
from orchestrator.sweep.bench import BenchPlan
from orchestrator.workloads import ArrivalKind, ClosedLoop, FixedLength, RandomTokens


def timeline(
    index: int, send_s: float, ttft_s: float, *, itl_s: float = 0.01, tokens: int = 3, error: str | None = None
) -> RequestTimeline:
    """A request of ten prompt tokens; a failed one has its first token and no end."""
    count = tokens if error is None else 1
    times = [send_s + ttft_s + itl_s * step for step in range(count)]
    return RequestTimeline(
        index=index,
        prompt_tokens=10,
        output_tokens=count,
        cached_tokens=0,
        arrival_s=send_s,
        send_s=send_s,
        first_token_s=times[0],
        end_s=None if error else times[-1],
        token_times_s=times,
        output_token_ids=[1] * count,
        error=error,
    )


def block(
    requests: Sequence[RequestTimeline],
    *,
    number: int = 0,
    duration_s: float = 10.0,
    dropped: bool = False,
    outcome: BlockOutcome = "complete",
    failure: str | None = None,
    slo: Slo | None = None,
) -> MeasuredBlock:
    """A block of these requests."""
    return MeasuredBlock(
        role="baseline",
        pair=number,
        dropped=dropped,
        seed=number,
        retune_s=0.0,
        result=BlockResult(
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_s=duration_s,
            requests=requests,
            in_force=InForce(),
            counters=Counters(),
        ),
        metrics=block_metrics(requests, duration_s, slo=slo),
        slip=dispatch_slip(requests, is_closed=False),
        outcome=outcome,
        failure=failure,
    )


def plan(load: ArrivalKind | None = None, **changes: Any) -> BenchPlan:
    """Blocks of four requests of 64 and 4 tokens. No load generator is late by 2 % of that SLO's limit."""
    values: dict[str, Any] = {
        "study": "bench",
        "workload": RandomTokens(prompts=4, input_len=FixedLength(tokens=64), output_len=FixedLength(tokens=4)),
        "load": load or ClosedLoop(concurrency=2),
        "seed": 1,
        "slo": Slo(ttft_ms=600_000.0),
    }
    return BenchPlan(**{**values, **changes})
