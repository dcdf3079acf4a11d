"""Many users who know nothing of one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.workloads.arrivals.base import ArrivalKind, from_gaps
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Positive


class PoissonArrivals(ArrivalKind):
    """Gaps are exponential; ``rate`` is in requests per second. The last of N requests is due at exactly N / rate."""

    kind: Literal["poisson"] = "poisson"
    rate: Positive

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        return from_gaps(rng.exponential(size=len(requests)), self.rate)
