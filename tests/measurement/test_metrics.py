from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import (
    METRIC_NAMES,
    STATISTICS,
    THROUGHPUTS,
    Slo,
    as_of_arrival,
    block_metrics,
    latency_samples,
    needs_slo,
    needs_two_tokens,
)
from orchestrator.records import BLOCKS

PERCENTILES = [90.0, 95.0, 99.0]
OF_VLLM = ("ttft", "tpot", "itl", "e2el")
OURS_ALONE = {
    name
    for name in METRIC_NAMES
    if "guidellm" in name or "arrival" in name or "per_gpu" in name or name == "prefill_token_throughput"
}
limits = st.none() | st.floats(1.0, 20_000.0)
slos = st.builds(Slo, ttft_ms=st.floats(1.0, 20_000.0), tpot_ms=limits, e2el_ms=limits)
gaps = st.floats(min_value=1e-6, max_value=10.0)


def timeline(
    *, send: float, times: list[float], prompt: int = 100, cached: int = 0, error: str | None = None, joined: int = 0
) -> RequestTimeline:
    """A request whose chunks came at ``times``; the last chunk brought ``joined`` tokens more than one."""
    return RequestTimeline(
        index=0,
        prompt_tokens=prompt,
        output_tokens=len(times) + joined,
        cached_tokens=cached,
        arrival_s=send,
        send_s=send,
        first_token_s=times[0] if times else None,
        end_s=times[-1] if times and error is None else None,
        token_times_s=times,
        output_token_ids=list(range(len(times) + joined)),
        error=error,
    )


@st.composite
def timelines(draw: st.DrawFn) -> RequestTimeline:
    send = draw(st.floats(min_value=0.0, max_value=100.0))
    steps = draw(st.lists(gaps, min_size=1, max_size=12))
    times = [send + passed for passed in itertools.accumulate(steps)]
    return timeline(
        send=send,
        times=times,
        prompt=draw(st.integers(1, 100_000)),
        error=draw(st.sampled_from([None, None, None, "failed"])),
        joined=draw(st.integers(0, 3)),
    )


def vllm_output(request: RequestTimeline) -> Any:
    """The same request as ``vllm bench serve`` would have noted it down."""
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput

    times = request.token_times_s
    return RequestFuncOutput(
        success=request.error is None,
        latency=times[-1] - request.send_s,
        output_tokens=request.output_tokens,
        ttft=times[0] - request.send_s,
        itl=[b - a for a, b in itertools.pairwise(times)],
        prompt_len=request.prompt_tokens,
        start_time=request.send_s,
        error=request.error or "",
    )


def vllm_metrics(requests: list[RequestTimeline], duration_s: float, slo: Slo) -> dict[str, float | None]:
    """vLLM's own figures under our names; None where vLLM has put 0 for want of a value."""
    from vllm.benchmarks.serve import calculate_metrics

    goodput = {name: getattr(slo, f"{name}_ms") for name in ("ttft", "tpot", "e2el")}
    goodput = {name: limit for name, limit in goodput.items() if limit is not None}
    outputs = [vllm_output(request) for request in requests]
    found, _ = calculate_metrics([], outputs, duration_s, None, PERCENTILES, goodput)
    ended = [request for request in requests if request.error is None]
    some = {
        "ttft": bool(ended),
        "e2el": bool(ended),
        "tpot": any(request.output_tokens > 1 for request in ended),
        "itl": any(len(request.token_times_s) > 1 for request in ended),
    }
    metrics: dict[str, float | None] = {}
    for latency in OF_VLLM:
        percentiles = dict(getattr(found, f"percentiles_{latency}_ms"))
        for statistic in STATISTICS:
            value = (
                getattr(found, f"{statistic}_{latency}_ms")
                if statistic in ("mean", "median")
                else percentiles[float(statistic[1:])]
            )
            metrics[f"{statistic}_{latency}_ms"] = float(value) if some[latency] else None
    for name in ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput"):
        metrics[name] = float(getattr(found, name))
    return metrics


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore:All requests failed")
@settings(max_examples=200)
@given(requests=st.lists(timelines(), min_size=1, max_size=8), duration_s=st.floats(0.01, 1000.0), slo=slos)
def test_the_figures_are_those_of_vllm_bench_serve(
    requests: list[RequestTimeline], duration_s: float, slo: Slo
) -> None:
    ours, theirs = block_metrics(requests, duration_s, slo=slo), vllm_metrics(requests, duration_s, slo)
    assert set(ours) - set(theirs) == OURS_ALONE
    for name, expected in theirs.items():
        if expected is None:
            assert ours[name] is None, name
        else:
            assert ours[name] == pytest.approx(expected, rel=1e-9, abs=0.0), name


def test_every_metric_is_a_column_of_the_blocks_table() -> None:
    assert set(block_metrics([timeline(send=0.0, times=[1.0])], 1.0)) == set(METRIC_NAMES)
    assert set(METRIC_NAMES) <= set(BLOCKS.names)


@given(
    good=st.lists(timelines().filter(lambda request: request.error is None), max_size=5),
    bad=st.lists(timelines(), min_size=1, max_size=5),
    place=st.integers(0, 5),
)
def test_failed_requests_change_nothing(good: list[RequestTimeline], bad: list[RequestTimeline], place: int) -> None:
    failed = [timeline(send=r.send_s, times=list(r.token_times_s), error="failed") for r in bad]
    silent = [timeline(send=0.0, times=[], error="no token")]
    mixed = good[:place] + failed + silent + good[place:]
    assert block_metrics(mixed, 2.0) == block_metrics(good, 2.0)


def test_a_block_in_which_everything_failed_has_no_latency_and_no_rate() -> None:
    metrics = block_metrics([timeline(send=0.0, times=[1.0], error="failed")], 2.0)
    assert {name for name, value in metrics.items() if value is not None} == {
        "request_throughput",
        "output_throughput",
        "total_token_throughput",
    }
    assert all(not value for value in metrics.values())


def test_single_token_requests_have_ttft_and_e2el_but_neither_tpot_nor_itl() -> None:
    metrics = block_metrics([timeline(send=1.0, times=[1.25]), timeline(send=2.0, times=[2.75])], 4.0)
    assert metrics["mean_ttft_ms"] == metrics["mean_e2el_ms"] == 500.0
    for name in METRIC_NAMES:
        assert (metrics[name] is None) == (needs_two_tokens(name) or needs_slo(name) or "per_gpu" in name)


def test_a_single_token_request_is_left_out_of_tpot() -> None:
    long = timeline(send=0.0, times=[1.0, 1.5, 2.0])
    metrics = block_metrics([timeline(send=0.0, times=[9.0]), long], 10.0)
    assert metrics["mean_tpot_ms"] == metrics["p99_itl_ms"] == 500.0


def test_percentiles_are_interpolated_in_milliseconds() -> None:
    requests = [timeline(send=0.0, times=[0.001 * (place + 1)]) for place in range(11)]
    metrics = block_metrics(requests, 1.0)
    assert metrics["median_ttft_ms"] == pytest.approx(6.0)
    assert metrics["p90_ttft_ms"] == pytest.approx(10.0)
    assert metrics["p95_ttft_ms"] == pytest.approx(10.5)


@given(requests=st.lists(timelines().filter(lambda request: request.error is None), min_size=1, max_size=5))
def test_prefill_throughput_counts_computed_tokens_until_the_last_first_token(requests: list[RequestTimeline]) -> None:
    value = block_metrics(requests, 1.0)["prefill_token_throughput"]
    span = max(r.token_times_s[0] for r in requests) - min(r.send_s for r in requests)
    assert value is not None
    assert value * span == pytest.approx(sum(r.prompt_tokens for r in requests))


def test_prefill_throughput_leaves_out_what_the_cache_had() -> None:
    request = timeline(send=1.0, times=[3.0, 9.0], prompt=100, cached=40)
    assert block_metrics([request], 9.0)["prefill_token_throughput"] == 30.0


def test_a_clock_that_saw_no_time_pass_gives_no_prefill_throughput() -> None:
    assert block_metrics([timeline(send=1.0, times=[1.0])], 1.0)["prefill_token_throughput"] is None


@given(requests=st.lists(timelines(), min_size=1, max_size=5), gpus=st.integers(1, 64), slo=slos)
def test_rates_of_a_gpu_are_the_rates_shared_out(requests: list[RequestTimeline], gpus: int, slo: Slo) -> None:
    metrics = block_metrics(requests, 3.0, slo=slo, gpus=gpus)
    for name in THROUGHPUTS:
        if not name.endswith("_per_gpu"):
            rate, each = metrics[name], metrics[f"{name}_per_gpu"]
            assert (rate is None) == (each is None)
            assert rate is None or each == pytest.approx(rate / gpus)


def test_guidellms_tpot_counts_the_first_token() -> None:
    """A second until the first of four tokens, and 0.2 s for each other: 1.6 s over 4 tokens."""
    metrics = block_metrics([timeline(send=2.0, times=[3.0, 3.2, 3.4, 3.6])], 5.0)
    assert metrics["mean_guidellm_tpot_ms"] == pytest.approx(400.0)
    assert metrics["mean_tpot_ms"] == pytest.approx(200.0)


def test_latencies_from_the_arrival_hold_the_wait_before_the_send() -> None:
    request = dataclasses.replace(timeline(send=2.0, times=[3.0, 3.5]), arrival_s=1.25)
    metrics = block_metrics([request], 5.0)
    assert metrics["mean_arrival_ttft_ms"] == pytest.approx(1750.0)
    assert metrics["mean_arrival_e2el_ms"] == pytest.approx(2250.0)
    assert metrics["mean_arrival_ttft_ms"] == block_metrics(as_of_arrival([request]), 5.0)["mean_ttft_ms"]


def test_samples_leave_out_what_failed() -> None:
    good, bad = timeline(send=0.0, times=[1.0]), timeline(send=0.0, times=[2.0], error="failed")
    assert latency_samples("ttft", [good, bad]) == [1.0]


def test_no_figure_is_ever_not_a_number() -> None:
    for requests in ([], [timeline(send=0.0, times=[])], [timeline(send=0.0, times=[0.5])]):
        for value in block_metrics(requests, 1.0).values():
            assert value is None or math.isfinite(value)
            assert not isinstance(value, np.generic)
