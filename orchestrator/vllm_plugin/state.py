"""What the plugin knows inside one process: whether it patched, and its counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WorkerState:
    """Counters of one worker process, from its start; and the live values that vLLM keeps nowhere itself."""

    context_chunks: int = 0
    workspace_entries: int = 0
    area_plans: int = 0
    area_limited: int = 0
    area_limit: int | None = None
    own_planner: bool = False
    start_chunk_size: int | None = None


@dataclass
class SchedulerState:
    """Counters of one engine core. The two maxima are cleared by every report."""

    steps: int = 0
    max_step_tokens: int = 0
    max_running_requests: int = 0
    long_prefill_cuts: int = 0


@dataclass
class PluginState:
    """``refused`` holds the guard's reason when nothing was patched; it starts as "not registered"."""

    refused: str | None = "the plugin was not loaded in this process (is it shut out by VLLM_PLUGINS?)"


PLUGIN = PluginState()
WORKER = WorkerState()
SCHEDULER = SchedulerState()
