from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measurement import METRIC_NAMES, MeasuredBlock, Slo, block_metrics
from orchestrator.sweep.bench.figures import SLO_SHARE, figures_of
from tests.sweep.bench.blocks import block, timeline

SLO = Slo(ttft_ms=300.0)
times = st.floats(0.001, 1.0)
requests = st.lists(st.tuples(times, times, st.integers(1, 5), st.booleans()), min_size=1, max_size=12)


def blocks_of(content: list[list[tuple[float, float, int, bool]]]) -> list[MeasuredBlock]:
    return [
        block(
            [
                timeline(index, index * 0.1, ttft, itl_s=itl, tokens=tokens, error="timeout: late" if failed else None)
                for index, (ttft, itl, tokens, failed) in enumerate(one)
            ],
            number=number,
            duration_s=5.0 + number,
            slo=SLO,
        )
        for number, one in enumerate(content)
    ]


@given(st.lists(requests, min_size=1, max_size=7))
def test_values_are_those_of_all_requests_in_one_run(content: list[list[tuple[float, float, int, bool]]]) -> None:
    """As if one run had served them: ``block_metrics``, which equals vLLM's own function."""
    blocks = blocks_of(content)
    together = [request for one in blocks for request in one.result.requests]
    metrics = block_metrics(together, sum(one.result.duration_s for one in blocks), slo=SLO, gpus=2.0)
    figures = figures_of(blocks, slo=SLO, gpus=2.0)
    assert figures.keys() == {*METRIC_NAMES, SLO_SHARE}
    for name in METRIC_NAMES:
        if name.startswith("prefill_token_throughput"):
            continue
        figure, expected = figures[name], metrics[name]
        assert (figure is None) == (expected is None), name
        assert figure is None or figure.value == pytest.approx(expected), name
    kept = figures[SLO_SHARE]
    assert kept is not None
    assert kept.value == pytest.approx(SLO.kept(together) / len(together))


def test_prefill_throughput_is_a_mean_over_the_blocks() -> None:
    blocks = blocks_of([[(0.5, 0.1, 2, False)] * 3, [(0.25, 0.1, 2, False)] * 3])
    values = [one.metrics["prefill_token_throughput"] for one in blocks]
    figure = figures_of(blocks)["prefill_token_throughput"]
    assert figure is not None
    assert values[0] is not None
    assert values[1] is not None
    assert figure.value == pytest.approx((values[0] + values[1]) / 2)


def test_what_is_not_defined_is_none() -> None:
    figures = figures_of(blocks_of([[(0.1, 0.1, 1, False)] * 3] * 5))
    missing = {"median_tpot_ms", "median_itl_ms", "request_goodput", "request_throughput_per_gpu", SLO_SHARE}
    assert missing <= {name for name, figure in figures.items() if figure is None}
    assert figures["median_ttft_ms"] is not None
