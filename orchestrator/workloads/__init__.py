"""Requests and the load under which they arrive."""

from orchestrator.workloads.arrivals import (
    AllAtOnce,
    ArrivalKind,
    Arrivals,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    PoissonArrivals,
    RampArrivals,
    Schedule,
    TraceTime,
)
from orchestrator.workloads.drawing import draw_many
from orchestrator.workloads.kinds import (
    AnyWorkload,
    BurstBehindGiant,
    ChunkedSteps,
    LongContext,
    MultiTurn,
    RandomTokens,
    SharedPrefix,
    ShareGPT,
    Trace,
    WorkloadKind,
    random_requests,
)
from orchestrator.workloads.lengths import (
    FixedLength,
    Length,
    LengthKind,
    LognormalLength,
    UniformLength,
    ZipfLength,
)
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request

__all__ = [
    "AllAtOnce",
    "AnyWorkload",
    "ArrivalKind",
    "Arrivals",
    "BurstBehindGiant",
    "ChunkedSteps",
    "ClosedLoop",
    "ConstantRate",
    "FixedLength",
    "GammaArrivals",
    "Length",
    "LengthKind",
    "LognormalLength",
    "LongContext",
    "MultiTurn",
    "PoissonArrivals",
    "Prompt",
    "RampArrivals",
    "RandomTokens",
    "Request",
    "Schedule",
    "ShareGPT",
    "SharedPrefix",
    "Trace",
    "TraceTime",
    "UniformLength",
    "WorkloadKind",
    "ZipfLength",
    "draw_many",
    "random_requests",
]
