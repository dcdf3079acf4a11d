"""From raw timelines to figures, and from pairs of blocks to a ratio. Imports neither Ray, torch nor vLLM.

Names are looked up when they are asked for: an analysis needs the statistics alone, and the rest imports what an engine
is configured with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.measurement.dispatch import (
        MAX_SLIP_SHARE,
        DispatchSlip,
        as_of_arrival,
        count_failures,
        dispatch_slip,
        error_class,
        invalid_reason,
    )
    from orchestrator.measurement.metrics import (
        GOODPUT_AT_SLO,
        LATENCIES,
        METRIC_NAMES,
        OBJECTIVES,
        STATISTICS,
        THROUGHPUTS,
        block_metrics,
        latency_samples,
        needs_slo,
        needs_two_tokens,
        statistic,
    )
    from orchestrator.measurement.pairing import (
        BlockOutcome,
        Direction,
        MeasuredBlock,
        PairedMeasurement,
        PairPlan,
        Role,
        measure_pairs,
    )
    from orchestrator.measurement.rate_search import Probe, RatePlan, RateResult, RateSearch
    from orchestrator.measurement.slo import Slo
    from orchestrator.measurement.stop_rules import StopHopeless

__all__ = [
    "GOODPUT_AT_SLO",
    "LATENCIES",
    "MAX_SLIP_SHARE",
    "METRIC_NAMES",
    "OBJECTIVES",
    "STATISTICS",
    "THROUGHPUTS",
    "BlockOutcome",
    "Direction",
    "DispatchSlip",
    "MeasuredBlock",
    "PairPlan",
    "PairedMeasurement",
    "Probe",
    "RatePlan",
    "RateResult",
    "RateSearch",
    "Role",
    "Slo",
    "StopHopeless",
    "as_of_arrival",
    "block_metrics",
    "count_failures",
    "dispatch_slip",
    "error_class",
    "invalid_reason",
    "latency_samples",
    "measure_pairs",
    "needs_slo",
    "needs_two_tokens",
    "statistic",
]

_HOMES = {
    "GOODPUT_AT_SLO": "metrics",
    "LATENCIES": "metrics",
    "MAX_SLIP_SHARE": "dispatch",
    "METRIC_NAMES": "metrics",
    "OBJECTIVES": "metrics",
    "STATISTICS": "metrics",
    "THROUGHPUTS": "metrics",
    "BlockOutcome": "pairing",
    "Direction": "pairing",
    "DispatchSlip": "dispatch",
    "MeasuredBlock": "pairing",
    "PairPlan": "pairing",
    "PairedMeasurement": "pairing",
    "Probe": "rate_search",
    "RatePlan": "rate_search",
    "RateResult": "rate_search",
    "RateSearch": "rate_search",
    "Role": "pairing",
    "Slo": "slo",
    "StopHopeless": "stop_rules",
    "as_of_arrival": "dispatch",
    "block_metrics": "metrics",
    "count_failures": "dispatch",
    "dispatch_slip": "dispatch",
    "error_class": "dispatch",
    "invalid_reason": "dispatch",
    "latency_samples": "metrics",
    "measure_pairs": "pairing",
    "needs_slo": "metrics",
    "needs_two_tokens": "metrics",
    "statistic": "metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
