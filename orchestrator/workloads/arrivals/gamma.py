"""Arrivals in bursts, or smoother than Poisson's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from orchestrator.workloads.arrivals.base import ArrivalKind, from_gaps
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Positive


class GammaArrivals(ArrivalKind):
    """Gaps have a gamma distribution. The last of N requests is due at exactly N / rate.

    Attributes:
        rate: Requests per second.
        burstiness: Shape of the distribution, 0.01 to 10,000, as in ``vllm bench serve``: 1 is Poisson, below are
            bursts, above the gaps are more even. The gaps' coefficient of variation is ``burstiness ** -0.5``.
    """

    kind: Literal["gamma"] = "gamma"
    rate: Positive
    # Far below, every gap but one rounds to nothing.
    burstiness: Annotated[float, Field(ge=0.01, le=10_000)]

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        return from_gaps(rng.gamma(self.burstiness, size=len(requests)), self.rate)
