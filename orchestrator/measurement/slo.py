"""Service-level objectives: what a request has to keep for it to count, and how many have to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.engines import RequestTimeline

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Slo(BaseModel):
    """Limits on the latencies of one request, in milliseconds; at least one is given.

    Source: ``--goodput`` of ``vllm bench serve`` (vLLM 0.32, ``calculate_metrics`` in ``vllm/benchmarks/serve.py``),
    which knows the same three and counts the TPOT of a request with one output token as 0.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token without the first.
        e2el_ms: End-to-end latency.
        share: Share of the requests that have to keep all limits for the SLO to hold, above 0 and at most 1.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2el_ms: Milliseconds | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 0.99

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if (self.ttft_ms, self.tpot_ms, self.e2el_ms) == (None, None, None):
            raise ValueError("give at least one limit: ttft_ms, tpot_ms or e2el_ms")
        return self

    @property
    def strictest_s(self) -> float:
        """The smallest limit on a latency that a late send would add to (TTFT, E2EL), else on any, in seconds."""
        added_to = [limit for limit in (self.ttft_ms, self.e2el_ms) if limit is not None]
        return min(added_to or [self.tpot_ms or 0.0]) / 1000.0

    def is_kept_by(self, request: RequestTimeline) -> bool:
        """Whether a request ended well and within every limit."""
        if request.error is not None or request.first_token_s is None or request.end_s is None:
            return False
        ttft, e2el = request.first_token_s - request.send_s, request.end_s - request.send_s
        tpot = (e2el - ttft) / (request.output_tokens - 1) if request.output_tokens > 1 else 0.0
        limits = ((ttft, self.ttft_ms), (tpot, self.tpot_ms), (e2el, self.e2el_ms))
        return all(limit is None or seconds <= limit / 1000.0 for seconds, limit in limits)

    def kept(self, requests: Sequence[RequestTimeline]) -> int:
        """How many requests keep it; one that failed does not."""
        return sum(self.is_kept_by(request) for request in requests)
