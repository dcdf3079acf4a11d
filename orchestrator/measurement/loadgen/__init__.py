"""Put an OpenAI-compatible server under load: open or closed loop, on a schedule computed beforehand."""

from orchestrator.measurement.loadgen.client import run_load
from orchestrator.measurement.loadgen.result import (
    MAX_SLIP_SHARE,
    DispatchSlip,
    LoadResult,
    as_of_arrival,
    invalid_reason,
)
from orchestrator.measurement.loadgen.target import VLLM_BODY, Target, check_target

__all__ = [
    "MAX_SLIP_SHARE",
    "VLLM_BODY",
    "DispatchSlip",
    "LoadResult",
    "Target",
    "as_of_arrival",
    "check_target",
    "invalid_reason",
    "run_load",
]
