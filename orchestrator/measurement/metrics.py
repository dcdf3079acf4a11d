"""Metrics of one block, computed from raw timelines with the definitions of ``vllm bench serve``.

Source: ``calculate_metrics`` in ``vllm/benchmarks/serve.py`` (vLLM 0.32). Times are in milliseconds, rates per second.
Only requests that ended well count; what failed is counted beside them, never averaged in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from orchestrator.engines import RequestTimeline
from orchestrator.measurement.slo import Slo

STATISTICS = ("mean", "median", "p90", "p95", "p99")
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)
_RATES = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "prefill_token_throughput",
    "request_goodput",
)
THROUGHPUTS = (*_RATES, *(f"{name}_per_gpu" for name in _RATES))


class _Ended(NamedTuple):
    """A request that ended well, and when its first token and its last came."""

    request: RequestTimeline
    first_s: float
    end_s: float

    @property
    def ttft(self) -> float:
        return self.first_s - self.request.send_s

    @property
    def e2el(self) -> float:
        return self.end_s - self.request.send_s


def _tpot(one: _Ended) -> Sequence[float]:
    others = one.request.output_tokens - 1
    return [(one.e2el - one.ttft) / others] if others > 0 else []


def _itl(one: _Ended) -> Sequence[float]:
    gaps: list[float] = np.diff(one.request.token_times_s).tolist()
    return gaps


_SAMPLES: dict[str, Callable[[_Ended], Sequence[float]]] = {
    "ttft": lambda one: [one.ttft],
    "tpot": _tpot,
    "itl": _itl,
    "e2el": lambda one: [one.e2el],
    "guidellm_tpot": lambda one: [one.e2el / one.request.output_tokens],
    "arrival_ttft": lambda one: [one.first_s - one.request.arrival_s],
    "arrival_e2el": lambda one: [one.end_s - one.request.arrival_s],
}
LATENCIES = tuple(_SAMPLES)
METRIC_NAMES = (*(f"{stat}_{latency}_ms" for latency in LATENCIES for stat in STATISTICS), *THROUGHPUTS)

GOODPUT_AT_SLO = "goodput_at_slo"
"""The objective that a search for the largest rate gives, in requests per second; no block has it by itself."""

OBJECTIVES = (*METRIC_NAMES, GOODPUT_AT_SLO)
"""What a study can optimise: columns of the blocks table."""


def block_metrics(
    requests: Sequence[RequestTimeline], duration_s: float, *, slo: Slo | None = None, gpus: float = 0.0
) -> dict[str, float | None]:
    """Every metric of ``METRIC_NAMES``; None where no request gives it.

    * TTFT: from the send to the first token.
    * TPOT: ``(E2EL - TTFT) / (output tokens - 1)``; it leaves the first token out, and requests with one token.
    * ITL: every gap between two chunks of a stream, pooled over the requests.
    * E2EL: from the send to the last token.
    * ``guidellm_tpot``: ``E2EL / output tokens``, with the first token (GuideLLM 0.8, ``schemas/request_stats.py``).
    * ``arrival_ttft`` and ``arrival_e2el``: from the intended arrival in place of the send, so that the time in which
      a late load generator could not send counts too (coordinated omission).
    * Throughputs: over the whole block. ``prefill_token_throughput`` counts prompt tokens that were computed (not
      cached) until the last request had its first token. ``request_goodput`` counts requests that keep the SLO; None
      without one. ``..._per_gpu``: divided by the GPUs; None without any.

    Args:
        requests: Timelines of one block.
        duration_s: Seconds of the whole block, above 0.
        slo: For the goodput.
        gpus: GPUs of the engine, 0 or more.
    """
    ended = [request for request in requests if request.error is None]
    metrics: dict[str, float | None] = {}
    for latency in LATENCIES:
        values = latency_samples(latency, ended)
        found = statistics(values) if values else dict.fromkeys(STATISTICS)
        for stat, value in found.items():
            metrics[f"{stat}_{latency}_ms"] = None if value is None else value * 1000.0
    output = sum(request.output_tokens for request in ended)
    prompt = sum(request.prompt_tokens for request in ended)
    metrics["request_throughput"] = len(ended) / duration_s
    metrics["output_throughput"] = output / duration_s
    metrics["total_token_throughput"] = (output + prompt) / duration_s
    metrics["prefill_token_throughput"] = _prefill_throughput(ended)
    metrics["request_goodput"] = None if slo is None else slo.kept(ended) / duration_s
    for name in _RATES:
        rate = metrics[name]
        metrics[f"{name}_per_gpu"] = rate / gpus if rate is not None and gpus > 0 else None
    return metrics


def needs_two_tokens(metric: str) -> bool:
    """Whether a metric is undefined when requests generate a single token."""
    return "_itl_" in metric or ("_tpot_" in metric and "guidellm" not in metric)


def needs_slo(metric: str) -> bool:
    """Whether a metric is undefined without an SLO."""
    return "goodput" in metric


def latency_samples(latency: str, requests: Sequence[RequestTimeline]) -> list[float]:
    """One latency of ``LATENCIES`` in seconds: a value for each request that has it, or for ITL each gap."""
    values: list[float] = []
    for request in requests:
        if request.error is None and request.first_token_s is not None and request.end_s is not None:
            values.extend(_SAMPLES[latency](_Ended(request, request.first_token_s, request.end_s)))
    return values


def statistics(values: Sequence[float]) -> dict[str, float | None]:
    """All of ``STATISTICS`` of at least one value."""
    # One call: each costs tens of microseconds, and every block has them all for every latency.
    percentiles = np.percentile(values, _PERCENTILES).tolist()
    return dict(zip(STATISTICS, [float(np.mean(values)), *percentiles], strict=True))


def statistic(stat: str, values: Sequence[float]) -> float:
    """One of ``STATISTICS`` of at least one value; percentiles are interpolated as ``numpy.percentile`` does."""
    if stat == "mean":
        return float(np.mean(values))
    percentile = 50.0 if stat == "median" else float(stat[1:])
    return float(np.percentile(values, percentile))


def _prefill_throughput(requests: Sequence[RequestTimeline]) -> float | None:
    begun = [(request, request.first_token_s) for request in requests if request.first_token_s is not None]
    if not begun:
        return None
    span = max(first for _, first in begun) - min(request.send_s for request, _ in begun)
    # A clock too coarse to see the prefill gives no rate.
    return sum(request.prompt_tokens - request.cached_tokens for request, _ in begun) / span if span > 0 else None
