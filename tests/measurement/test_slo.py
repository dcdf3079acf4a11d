from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import Slo

REQUEST = RequestTimeline(
    index=0,
    prompt_tokens=10,
    output_tokens=3,
    cached_tokens=0,
    arrival_s=0.0,
    send_s=1.0,
    first_token_s=1.5,
    end_s=1.7,
    token_times_s=[1.5, 1.6, 1.7],
    output_token_ids=[1, 2, 3],
)
"""TTFT 500 ms, TPOT 100 ms, E2EL 700 ms."""


@pytest.mark.parametrize(
    ("limits", "is_kept"),
    [
        ({"ttft_ms": 501.0}, True),
        ({"ttft_ms": 499.0}, False),
        ({"tpot_ms": 101.0}, True),
        ({"tpot_ms": 99.0}, False),
        ({"e2el_ms": 701.0}, True),
        ({"e2el_ms": 699.0}, False),
        ({"ttft_ms": 501.0, "tpot_ms": 99.0}, False),
    ],
)
def test_a_request_keeps_every_limit_or_none(limits: dict[str, float], is_kept: bool) -> None:
    assert Slo(**limits).is_kept_by(REQUEST) is is_kept
    assert Slo(**limits).kept([REQUEST, REQUEST]) == 2 * is_kept


def test_a_single_token_has_no_tpot_to_exceed() -> None:
    one = dataclasses.replace(REQUEST, output_tokens=1, end_s=1.5, token_times_s=[1.5])
    assert Slo(tpot_ms=0.001).is_kept_by(one)


@pytest.mark.parametrize("changes", [{"error": "short: 1 of 3 tokens"}, {"end_s": None}, {"first_token_s": None}])
def test_what_did_not_end_well_keeps_nothing(changes: dict[str, Any]) -> None:
    assert not Slo(e2el_ms=1e9).is_kept_by(dataclasses.replace(REQUEST, **changes))


@pytest.mark.parametrize(
    ("limits", "strictest_s"),
    [({"ttft_ms": 500.0, "e2el_ms": 900.0, "tpot_ms": 20.0}, 0.5), ({"tpot_ms": 20.0}, 0.02)],
)
def test_the_strictest_limit_is_one_that_a_late_send_adds_to(limits: dict[str, float], strictest_s: float) -> None:
    assert Slo(**limits).strictest_s == strictest_s


@pytest.mark.parametrize("limits", [{}, {"ttft_ms": 0.0}, {"ttft_ms": 1.0, "share": 0.0}, {"ttft": 1.0}])
def test_no_limit_or_a_wrong_one_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Slo(**limits)
