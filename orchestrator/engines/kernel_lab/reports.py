"""What the lab reports of itself: what its arguments came to, what is in force, what a block counted."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch

from orchestrator.engines.contract import Counters
from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.counters import LabInForce
from orchestrator.engines.kernel_lab.model import LabModel
from orchestrator.engines.kernel_lab.roof import Roof
from orchestrator.engines.kernel_lab.scheduler import Limits, StepScheduler
from orchestrator.planning import workspace_alignment


def resolved(args: LabArgs, model: LabModel, roof: Roof, dtype: torch.dtype) -> dict[str, Any]:
    """All arguments with their defaults, the roof, the kernels and torch's version, as JSON takes them.

    Args:
        dtype: Of caches and products.
    """
    return {
        "lab_config": {
            **args.model_dump(),
            "block_size": args.tokens_per_block,
            "num_kv_blocks": args.blocks,
            "dtype": str(dtype).removeprefix("torch."),
        },
        "roof": asdict(roof),
        "kernels": model.kernels.name,
        "torch": torch.__version__,
    }


def in_force(args: LabArgs, model: LabModel, limits: Limits, *, cpu_chunked_prefill: bool) -> LabInForce:
    """What is in force now. Without dense and sparse layers there is no workspace of context rows."""
    mla, knobs = model.mla, model.knobs
    force = LabInForce(
        builders=0 if mla is None else 1,
        kv_blocks=args.blocks,
        prefill_chunk_size=knobs.prefill_chunk_size,
        prefill_area_limit=knobs.prefill_area_limit,
        cpu_chunked_prefill=cpu_chunked_prefill,
        chunk_order=knobs.order,
        **asdict(limits),
    )
    if mla is None:
        return force
    return replace(
        force,
        workspace_rows=mla.context.workspace_rows,
        workspace_bytes=mla.workspace_bytes,
        workspace_alignment=workspace_alignment(
            block_size=args.tokens_per_block,
            dcp=args.decode_context_parallel_size,
            interleave=args.cp_kv_cache_interleave_size,
        ),
    )


def counters(model: LabModel, scheduler: StepScheduler) -> Counters:
    """The contract's counters of the block that has just ended."""
    tally = model.tally
    return Counters(
        context_chunks=tally.context_chunks,
        workspace_entries=tally.workspace_entries,
        area_plans=tally.area_plans,
        area_limited=tally.area_limited,
        long_prefill_cuts=scheduler.long_prefill_cuts,
        scheduler_steps=scheduler.steps,
        max_step_tokens=scheduler.max_step_tokens,
        max_running_requests=scheduler.max_running_requests,
    )
