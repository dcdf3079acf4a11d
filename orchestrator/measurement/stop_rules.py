"""Rules that end a block early, because its outcome is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.measurement.slo import Slo
from orchestrator.measurement.stats import detect_saturation


@dataclass(frozen=True)
class StopHopeless:
    """Ends an open-loop block that cannot hold its SLO any more, or whose requests arrive faster than they are served.

    The first part counts requests that have missed the TTFT or E2EL limit already, those that still wait included: once
    they are more than the share that may miss it, no later request can change the outcome. The second is
    ``orchestrator.measurement.stats.detect_saturation``.

    Attributes:
        slo: The limits, and the share of requests that has to keep them.
        requests: Requests of the whole block.
    """

    slo: Slo
    requests: int

    def __call__(
        self, send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        may_miss = int((1 - self.slo.share) * self.requests + 1e-9)
        missed = self._missed(np.asarray(send_s), np.asarray(first_token_s), np.asarray(end_s), now_s)
        if missed > may_miss:
            return f"slo: {missed} requests have missed it, {may_miss} of {self.requests} may"
        found = detect_saturation(send_s, first_token_s, end_s, now_s)
        if found.over:
            return f"over-saturated: TTFT grows by {found.ttft_slope:.2f} s a second"
        return None

    def _missed(self, send: np.ndarray, first: np.ndarray, end: np.ndarray, now_s: float) -> int:
        missed = np.zeros(len(send), dtype=bool)
        for times, limit_ms in ((first, self.slo.ttft_ms), (end, self.slo.e2el_ms)):
            if limit_ms is not None:
                so_far = np.where(np.isnan(times), now_s, times) - send
                missed |= so_far > limit_ms / 1000.0
        return int(missed.sum())
