"""From raw timelines to figures, and from pairs of blocks to a ratio. Imports neither Ray, torch nor vLLM."""

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
