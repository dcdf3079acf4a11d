"""From raw timelines to figures, and from pairs of blocks to a ratio. Imports neither Ray, torch nor vLLM."""

from orchestrator.measurement.metrics import METRIC_NAMES, block_metrics, needs_two_tokens
from orchestrator.measurement.pairing import Direction, MeasuredBlock, PairedMeasurement, PairPlan, Role, measure_pairs

__all__ = [
    "METRIC_NAMES",
    "Direction",
    "MeasuredBlock",
    "PairPlan",
    "PairedMeasurement",
    "Role",
    "block_metrics",
    "measure_pairs",
    "needs_two_tokens",
]
