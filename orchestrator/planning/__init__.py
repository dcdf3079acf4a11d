"""Chunk plans, workspace sizes and memory of MLA prefill, as functions of integers. Imports no framework."""

from orchestrator.planning.workspace import (
    RULES,
    align_workspace,
    dense_workspace_rows,
    rule_for_vllm,
    sparse_workspace_rows,
    workspace_alignment,
)

__all__ = [
    "RULES",
    "align_workspace",
    "dense_workspace_rows",
    "rule_for_vllm",
    "sparse_workspace_rows",
    "workspace_alignment",
]
