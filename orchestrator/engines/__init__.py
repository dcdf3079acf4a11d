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
)

__all__ = [
    "BlockResult",
    "Counters",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineInfo",
    "InForce",
    "KnobValue",
    "RequestTimeline",
]
