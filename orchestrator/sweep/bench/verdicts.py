"""What the blocks of a benchmark say of the load itself: was there a steady state, and was it too much?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import MeasuredBlock, error_class
from orchestrator.measurement.stats import detect_saturation, find_steady_state
from orchestrator.measurement.stats.saturation import MIN_POINTS
from orchestrator.measurement.stats.steady_state import MIN_BATCHES

BATCH = 5
"""Requests averaged by the steady-state rule, as published (MSER-5)."""


@dataclass(frozen=True)
class SteadyVerdict:
    """In how many blocks the TTFT leaves its warm-up in the first half, of those long enough to judge.

    Attributes:
        first: Largest number of requests that a judged block had before its steady part; None without one.
    """

    reached: int
    judged: int
    blocks: int
    first: int | None


@dataclass(frozen=True)
class SaturationVerdict:
    """In how many blocks requests arrived faster than they were served, of those long enough to judge.

    Attributes:
        ttft_slope: Steepest growth of the TTFT, in seconds per second; None without a judged block.
    """

    over: int
    judged: int
    blocks: int
    ttft_slope: float | None


def steady_verdict(blocks: Sequence[MeasuredBlock]) -> SteadyVerdict:
    """By ``find_steady_state`` on the TTFTs of each block in the order of their sends; 50 requests are needed."""
    found = []
    for block in blocks:
        sent = sorted((one for one in block.result.requests if one.error is None), key=lambda one: one.send_s)
        ttfts = [one.first_token_s - one.send_s for one in sent if one.first_token_s is not None]
        if len(ttfts) >= MIN_BATCHES * BATCH:
            found.append(find_steady_state(ttfts, batch=BATCH))
    first = max((state.first for state in found), default=None)
    return SteadyVerdict(sum(state.reached for state in found), len(found), len(blocks), first)


def saturation_verdict(blocks: Sequence[MeasuredBlock]) -> SaturationVerdict:
    """By ``detect_saturation`` at each block's last send: later the queue only empties."""
    found = []
    for block in blocks:
        sent = [one for one in block.result.requests if error_class(one) not in ("not_sent", "connect")]
        if sent:
            sends = np.array([one.send_s for one in sent])
            firsts = np.array([math.nan if one.first_token_s is None else one.first_token_s for one in sent])
            judgement = detect_saturation(sends, firsts, np.array([_end_s(one) for one in sent]), float(sends.max()))
            if judgement.points >= MIN_POINTS:
                found.append(judgement)
    slope = max((one.ttft_slope for one in found), default=None)
    return SaturationVerdict(sum(one.over for one in found), len(found), len(blocks), slope)


def _end_s(request: RequestTimeline) -> float:
    """When a request left the server; one that timed out never did."""
    if request.end_s is not None:
        return request.end_s
    if error_class(request) == "timeout":
        return math.nan
    return request.token_times_s[-1] if request.token_times_s else request.send_s
