from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from orchestrator.measurement import Slo, StopHopeless

NEVER = math.nan


def test_a_block_goes_on_while_its_slo_may_hold() -> None:
    rule = StopHopeless(slo=Slo(ttft_ms=1000.0, share=0.5), requests=4)
    # Two of four may miss it; two have: one was late, one still waits.
    assert rule([0.0, 0.0, 0.0], [0.5, 1.5, NEVER], [0.6, 1.6, NEVER], 1.7) is None


def test_it_ends_once_too_many_have_missed_it() -> None:
    rule = StopHopeless(slo=Slo(ttft_ms=1000.0, share=0.75), requests=4)
    reason = rule([0.0, 0.0, 0.0], [0.5, 1.5, NEVER], [0.6, 1.6, NEVER], 1.7)
    assert reason == "slo: 2 requests have missed it, 1 of 4 may"


def test_an_e2el_limit_counts_too() -> None:
    rule = StopHopeless(slo=Slo(e2el_ms=1000.0, share=1.0), requests=9)
    assert rule([0.0], [0.1], [NEVER], 0.9) is None
    assert rule([0.0], [0.1], [NEVER], 1.1) is not None


@pytest.mark.parametrize(("rho", "is_over"), [(0.5, False), (2.0, True)])
def test_it_ends_when_requests_arrive_faster_than_they_are_served(rho: float, is_over: bool) -> None:
    rule = StopHopeless(slo=Slo(ttft_ms=1e9), requests=10_000)
    send = np.arange(0, 60, 0.05 / rho)
    first = np.empty(len(send))
    free = 0.0
    for index, time_s in enumerate(send.tolist()):
        free = max(free, time_s) + 0.05
        first[index] = free
    now = 30.0
    sent = send <= now
    known = np.where(first[sent] <= now, first[sent], NEVER)
    reason = rule(send[sent].tolist(), known.tolist(), known.tolist(), now)
    assert (reason is not None) is is_over
    if reason is not None:
        assert reason.startswith("over-saturated: ")


def test_it_can_be_carried_to_another_process() -> None:
    rule = StopHopeless(slo=Slo(ttft_ms=1000.0), requests=4)
    assert pickle.loads(pickle.dumps(rule)) == rule
