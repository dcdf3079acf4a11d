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

__all__ = [
    "LIVE_KNOBS",
    "BlockResult",
    "Counters",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineInfo",
    "InForce",
    "KnobValue",
    "RequestTimeline",
    "StopRule",
]
