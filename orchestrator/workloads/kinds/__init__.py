"""What the requests of a block are. Each kind draws fresh prompts for every block from the block's seed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.kinds.burst_behind_giant import BurstBehindGiant
from orchestrator.workloads.kinds.chunked_steps import ChunkedSteps
from orchestrator.workloads.kinds.long_context import LongContext
from orchestrator.workloads.kinds.multi_turn import MultiTurn
from orchestrator.workloads.kinds.random_tokens import RandomTokens, random_requests
from orchestrator.workloads.kinds.shared_prefix import SharedPrefix
from orchestrator.workloads.kinds.sharegpt import ShareGPT
from orchestrator.workloads.kinds.trace import Trace

AnyWorkload = Annotated[
    RandomTokens | SharedPrefix | MultiTurn | Trace | ShareGPT | LongContext | BurstBehindGiant | ChunkedSteps,
    Field(discriminator="kind"),
]
"""A section of a spec: one of the kinds."""

__all__ = [
    "AnyWorkload",
    "BurstBehindGiant",
    "ChunkedSteps",
    "LongContext",
    "MultiTurn",
    "RandomTokens",
    "ShareGPT",
    "SharedPrefix",
    "Trace",
    "WorkloadKind",
    "random_requests",
]
