"""One request every so often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from orchestrator.workloads.arrivals.base import ArrivalKind
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Positive


class ConstantRate(ArrivalKind):
    """Request i (from 1) is due at ``i / rate`` seconds; ``rate`` is in requests per second."""

    kind: Literal["constant"] = "constant"
    rate: Positive

    def _times(self, requests: Sequence[Request], rng: np.random.Generator) -> list[float]:
        return [count / self.rate for count in range(1, len(requests) + 1)]
