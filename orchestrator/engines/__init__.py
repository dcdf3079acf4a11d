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
    RequestTimeline,
    StopRule,
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
    "RequestTimeline",
    "StopRule",
]
