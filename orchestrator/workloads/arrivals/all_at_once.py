"""All requests at the start of the block: the throughput of a full queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.workloads.arrivals.base import ArrivalKind
from orchestrator.workloads.requests import Request


class AllAtOnce(ArrivalKind):
    """Every request is due at 0."""

    kind: Literal["all_at_once"] = "all_at_once"

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        return [0.0] * len(requests)
