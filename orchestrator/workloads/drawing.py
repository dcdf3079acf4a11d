"""A number of requests of a workload, however many one of its blocks has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator.workloads.kinds import WorkloadKind
from orchestrator.workloads.requests import Request


def draw_many(workload: WorkloadKind, count: int, *, seed: Sequence[int], vocab_size: int) -> list[Request]:
    """The first ``count`` requests of as many blocks of the workload as that takes, each from a seed of its own.

    A conversation that is cut off at the end keeps its first turns. Times of a trace or a preset are left out: the
    arrival process decides.
    """
    requests: list[Request] = []
    block = 0
    while len(requests) < count:
        first = len(requests)
        for request in workload.draw([*seed, block], vocab_size=vocab_size):
            follows = None if request.follows is None else request.follows + first
            requests.append(dataclasses.replace(request, at_s=None, follows=follows))
        block += 1
    return requests[:count]
