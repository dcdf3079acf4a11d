"""Statistics of measurements. Pure numbers: importing this needs no framework."""

from orchestrator.measurement.stats.block_bootstrap import bootstrap_ratio
from orchestrator.measurement.stats.confirmation import confirm, expected_optimism
from orchestrator.measurement.stats.drift import Drift, baseline_drift
from orchestrator.measurement.stats.paired import PooledNoise, RatioInterval, paired_ratio
from orchestrator.measurement.stats.percentile import (
    PercentileInterval,
    blocked_percentile_interval,
    percentile_interval,
)
from orchestrator.measurement.stats.saturation import Saturation, detect_saturation
from orchestrator.measurement.stats.selection import Selection, select
from orchestrator.measurement.stats.sequential import SequentialTest, Verdict
from orchestrator.measurement.stats.steady_state import SteadyState, find_steady_state

__all__ = [
    "Drift",
    "PercentileInterval",
    "PooledNoise",
    "RatioInterval",
    "Saturation",
    "Selection",
    "SequentialTest",
    "SteadyState",
    "Verdict",
    "baseline_drift",
    "blocked_percentile_interval",
    "bootstrap_ratio",
    "confirm",
    "detect_saturation",
    "expected_optimism",
    "find_steady_state",
    "paired_ratio",
    "percentile_interval",
    "select",
]
