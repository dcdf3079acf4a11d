"""When the requests of a block arrive: a schedule in absolute times, computed before the block begins."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.workloads.arrivals.all_at_once import AllAtOnce
from orchestrator.workloads.arrivals.base import ArrivalKind, Schedule
from orchestrator.workloads.arrivals.closed_loop import ClosedLoop
from orchestrator.workloads.arrivals.constant import ConstantRate
from orchestrator.workloads.arrivals.gamma import GammaArrivals
from orchestrator.workloads.arrivals.poisson import PoissonArrivals
from orchestrator.workloads.arrivals.ramp import RampArrivals
from orchestrator.workloads.arrivals.trace_time import TraceTime

Arrivals = Annotated[
    AllAtOnce | ClosedLoop | ConstantRate | PoissonArrivals | GammaArrivals | RampArrivals | TraceTime,
    Field(discriminator="kind"),
]
"""A section of a spec: one of the kinds."""

__all__ = [
    "AllAtOnce",
    "ArrivalKind",
    "Arrivals",
    "ClosedLoop",
    "ConstantRate",
    "GammaArrivals",
    "PoissonArrivals",
    "RampArrivals",
    "Schedule",
    "TraceTime",
]
