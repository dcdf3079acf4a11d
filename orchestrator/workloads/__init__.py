"""Requests and the load under which they arrive."""

from orchestrator.workloads.prompts import Load, Prompt, Workload, make_prompts

__all__ = ["Load", "Prompt", "Workload", "make_prompts"]
