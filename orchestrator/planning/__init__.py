"""Chunk plans, workspace sizes and memory of MLA prefill, as functions of integers. Imports no framework."""

from orchestrator.planning.chunks import (
    ORDERS,
    PREFILL_CHUNK_SIZE,
    area_limit,
    fixed_chunks,
    plan_prefill_array,
    plan_prefill_chunks,
    plan_prefill_tuples,
    request_extents,
)
from orchestrator.planning.context import ContextChunk, ContextPlan, plan_context_chunks
from orchestrator.planning.fcfs import Share, fcfs_steps
from orchestrator.planning.layers import LAYER_TYPES, LayerType
from orchestrator.planning.picture import context_svg, plans_svg
from orchestrator.planning.plans import LAUNCH_ROWS, Chunk, ChunkPlan
from orchestrator.planning.step import StepPlanner, planner_of, step_planner
from orchestrator.planning.workspace import (
    RULES,
    align_workspace,
    dense_workspace_rows,
    rule_for_vllm,
    sparse_workspace_rows,
    workspace_alignment,
)
from orchestrator.planning.worst import AreaPlanning, SchedulerLimits, WorstBatch, worst_batches

__all__ = [
    "LAUNCH_ROWS",
    "LAYER_TYPES",
    "ORDERS",
    "PREFILL_CHUNK_SIZE",
    "RULES",
    "AreaPlanning",
    "Chunk",
    "ChunkPlan",
    "ContextChunk",
    "ContextPlan",
    "LayerType",
    "SchedulerLimits",
    "Share",
    "StepPlanner",
    "WorstBatch",
    "align_workspace",
    "area_limit",
    "context_svg",
    "dense_workspace_rows",
    "fcfs_steps",
    "fixed_chunks",
    "plan_context_chunks",
    "plan_prefill_array",
    "plan_prefill_chunks",
    "plan_prefill_tuples",
    "planner_of",
    "plans_svg",
    "request_extents",
    "rule_for_vllm",
    "sparse_workspace_rows",
    "step_planner",
    "warm_up",
    "workspace_alignment",
    "worst_batches",
]


def warm_up() -> None:
    """Load the compiled loops now, so that no planning call pays for it.

    Takes about half a second to load numba, and a few seconds more when no machine code of an earlier process is found.
    """
    plan_prefill_array([1], [1], compress_ratio=1, window=1, area_limit=1)
    plan_context_chunks([1], workspace_rows=1, block_size=1)
    plan_prefill_chunks([1], [1], compress_ratio=1, window=1, area_limit=1, order="optimal")
