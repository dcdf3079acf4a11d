"""Metrics of one block, computed from raw timelines with the definitions of ``vllm bench serve``.

Source: ``calculate_metrics`` in ``vllm/benchmarks/serve.py`` (vLLM 0.32). Times are in milliseconds, rates per second.
Only requests that ended well count; what failed is counted beside them, never averaged in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.engines import RequestTimeline

LATENCIES = ("ttft", "tpot", "itl", "e2el")
STATISTICS = ("mean", "median", "p90", "p95", "p99")
THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput", "prefill_token_throughput")
METRIC_NAMES = (*(f"{stat}_{latency}_ms" for latency in LATENCIES for stat in STATISTICS), *THROUGHPUTS)


def block_metrics(requests: Sequence[RequestTimeline], duration_s: float) -> dict[str, float | None]:
    """Every metric of ``METRIC_NAMES``; None where no request gives it.

    * TTFT: from the send to the first token.
    * TPOT: ``(E2EL - TTFT) / (output tokens - 1)``; it leaves the first token out, and requests with one token.
    * ITL: every gap between two chunks of a stream, pooled over the requests.
    * E2EL: from the send to the last token.
    * Throughputs: over the whole block. ``prefill_token_throughput`` counts prompt tokens that were computed (not
      cached) until the last request had its first token.

    Args:
        requests: Timelines of one block.
        duration_s: Seconds of the whole block, above 0.
    """
    ended = [request for request in requests if request.error is None]
    samples = {latency: _samples(latency, ended) for latency in LATENCIES}
    metrics: dict[str, float | None] = {}
    for latency, values in samples.items():
        for stat in STATISTICS:
            metrics[f"{stat}_{latency}_ms"] = _statistic(stat, values) * 1000.0 if values else None
    output = sum(request.output_tokens for request in ended)
    prompt = sum(request.prompt_tokens for request in ended)
    metrics["request_throughput"] = len(ended) / duration_s
    metrics["output_throughput"] = output / duration_s
    metrics["total_token_throughput"] = (output + prompt) / duration_s
    metrics["prefill_token_throughput"] = _prefill_throughput(ended)
    return metrics


def needs_two_tokens(metric: str) -> bool:
    """Whether a metric is undefined when requests generate a single token."""
    return "_tpot_" in metric or "_itl_" in metric


def _samples(latency: str, requests: Sequence[RequestTimeline]) -> list[float]:
    """One latency in seconds: a value for each request, or for ITL each gap."""
    values: list[float] = []
    for request in requests:
        if request.first_token_s is None or request.end_s is None:
            continue
        ttft, e2el = request.first_token_s - request.send_s, request.end_s - request.send_s
        if latency == "ttft":
            values.append(ttft)
        elif latency == "e2el":
            values.append(e2el)
        elif latency == "tpot" and request.output_tokens > 1:
            values.append((e2el - ttft) / (request.output_tokens - 1))
        elif latency == "itl":
            values.extend(np.diff(request.token_times_s).tolist())
    return values


def _statistic(stat: str, values: Sequence[float]) -> float:
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
