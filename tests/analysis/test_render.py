"""Ratios in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.render import describe_change, format_ratio
from orchestrator.analysis.run_spec import METRICS
from orchestrator.measurement import OBJECTIVES


@pytest.mark.parametrize(
    ("metric", "ratio", "words"),
    [
        ("median_ttft_ms", 0.66, "prefill takes 34 % less time"),
        ("p99_ttft_ms", 1.5, "prefill takes 50 % more time"),
        ("mean_tpot_ms", 0.985, "an output token takes 1.5 % less time"),
        ("p90_e2el_ms", 0.9996, "a request takes 0.04 % less time"),
        ("median_itl_ms", 0.5, "the wait between two tokens takes 50 % less time"),
        ("prefill_token_throughput", 1.25, "prefill token throughput is 25 % higher"),
        ("request_throughput", 0.9, "request throughput is 10 % lower"),
    ],
)
def test_change_in_plain_words(metric: str, ratio: float, words: str) -> None:
    assert describe_change(metric, ratio) == words


@pytest.mark.parametrize("metric", OBJECTIVES)
def test_every_metric_has_words(metric: str) -> None:
    assert describe_change(metric, 0.5).split()


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.6612, "0.66"), (1.0, "1.00"), (0.9991, "0.999"), (1.0004, "1.0004"), (math.inf, "unbounded"), (0.0, "0.00")],
)
def test_ratio_as_text(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


@given(st.floats(0.5, 2).filter(lambda value: abs(value - 1) > 1e-5))
def test_a_ratio_that_is_not_one_does_not_look_like_one(ratio: float) -> None:
    assert float(format_ratio(ratio)) != 1


def test_every_objective_can_be_answered() -> None:
    assert sorted(METRICS) == sorted(OBJECTIVES)
