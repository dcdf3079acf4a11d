"""What can be measured, behind one contract. Importing this room imports neither vLLM nor torch."""

from orchestrator.engines.contract import (
    BlockResult,
    Counters,
    Engine,
    EngineConfig,
    EngineError,
    EngineInfo,
    InForce,
    KnobValue,
    RejectedError,
    RequestTimeline,
    StopRule,
    TunedRuns,
)
from orchestrator.engines.live import LIVE_KNOBS
from orchestrator.engines.progress import PROGRESS, Progress

__all__ = [
    "LIVE_KNOBS",
    "PROGRESS",
    "BlockResult",
    "Counters",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineInfo",
    "InForce",
    "KnobValue",
    "Progress",
    "RejectedError",
    "RequestTimeline",
    "StopRule",
    "TunedRuns",
]
