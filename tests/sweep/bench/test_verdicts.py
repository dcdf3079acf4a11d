from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.engines import RequestTimeline
from orchestrator.sweep.bench.verdicts import saturation_verdict, steady_verdict
from tests.sweep.bench.blocks import block, timeline


def queue(rate: float, service_s: float, count: int, error: str | None = None) -> list[RequestTimeline]:
    """One server, Poisson arrivals; the load is ``rate * service_s``."""
    rng = np.random.default_rng(3)
    sends = np.cumsum(rng.exponential(1 / rate, size=count))
    requests, free = [], 0.0
    for index, send in enumerate(sends.tolist()):
        free = max(free, send) + service_s
        requests.append(timeline(index, send, free - send, tokens=1, error=error if index % 10 == 0 else None))
    return requests


@pytest.mark.parametrize("error", [None, "timeout: no end", "http_503: no"])
def test_a_load_above_the_capacity_is_told_from_one_below(error: str | None) -> None:
    below = block(queue(rate=30.0, service_s=0.5 / 30.0, count=900, error=error))
    above = block(queue(rate=30.0, service_s=1.6 / 30.0, count=900, error=error))
    verdict = saturation_verdict([above, below, above])
    assert (verdict.over, verdict.judged, verdict.blocks) == (2, 3, 3)
    assert verdict.ttft_slope is not None
    assert verdict.ttft_slope > 0.1


def test_a_block_too_short_to_judge_is_not_judged() -> None:
    short = block(queue(rate=30.0, service_s=0.1, count=40))
    verdict = saturation_verdict([short, block([timeline(0, 0.0, 0.1, error="not_sent: gone")])])
    assert (verdict.over, verdict.judged, verdict.blocks, verdict.ttft_slope) == (0, 0, 2, None)
    steady = steady_verdict([short])
    assert (steady.reached, steady.judged, steady.blocks, steady.first) == (0, 0, 1, None)


def test_a_steady_state_is_one_that_comes_in_the_first_half() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0.1, 0.002, size=200)
    warming = noise + 0.5 * np.exp(-np.arange(200) / 10)
    growing = noise + 0.01 * np.arange(200)
    warm, grown = (
        block([timeline(index, index * 0.1, float(ttft)) for index, ttft in enumerate(ttfts)])
        for ttfts in (warming, growing)
    )
    steady = steady_verdict([warm, grown])
    assert (steady.reached, steady.judged, steady.blocks) == (1, 2, 2)
    assert steady.first is not None
    assert not math.isnan(steady.first)
    only = steady_verdict([warm])
    assert only.first is not None
    assert 10 <= only.first <= 100
