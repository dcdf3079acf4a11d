"""Blocks whose steps take about as long: what one of them took says what another may take."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence

from orchestrator.engines import KnobValue
from orchestrator.workloads import Request, Schedule


def block_kind(
    live_values: Mapping[str, KnobValue], requests: Sequence[Request], schedule: Schedule, *, top2: bool
) -> int:
    """A number above 0, the same for blocks at the same values whose loads are alike.

    Loads are alike when the longest request (prompt and output), the requests that may be in flight, and the rate at
    which they arrive lie between the same two powers of two. Fresh prompts of one workload are.

    Args:
        live_values: Values in force; none for those of the engine's start.
        top2: Whether log probabilities are asked for, which other kernels compute.
    """
    longest = max((len(one.prompt.token_ids) + one.prompt.output_len for one in requests), default=0)
    at_a_time = min(schedule.concurrency or len(requests), len(requests))
    last_s = max(schedule.times_s or (), default=0.0)
    rate = len(requests) / last_s if last_s > 0 else 0.0
    powers = [math.frexp(amount)[1] for amount in (longest, at_a_time, rate)]
    return zlib.crc32(json.dumps([sorted(live_values.items()), top2, powers]).encode()) + 1
