"""Names and shapes that the engine and the plugin share across processes. Nothing here imports vLLM."""

from __future__ import annotations

from typing import Final, TypedDict

WORKER_EXTENSION: Final = "orchestrator.vllm_plugin.worker.WorkerExtension"
"""For vLLM's ``worker_extension_cls``."""

SERVER_RPC: Final = "orchestrator.vllm_plugin.server.ServerRpc"
"""For the ``--middleware`` of ``vllm serve``."""

RPC_PREFIX: Final = "/chunksmith/"
"""Of the paths that it answers."""

RPC_WORKER_REPORT: Final = "chunksmith_worker_report"
RPC_WORKER_RETUNE: Final = "chunksmith_worker_retune"
UTILITY_SCHEDULER_REPORT: Final = "chunksmith_scheduler_report"
UTILITY_SCHEDULER_RETUNE: Final = "chunksmith_scheduler_retune"

WORKER_KNOBS: Final = ("mla_workspace_rows", "prefill_chunk_size", "prefill_area_limit")
"""Live knobs that each worker applies."""

SCHEDULER_KNOBS: Final = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
"""Live knobs that the engine core's scheduler applies."""


class WorkerReport(TypedDict):
    """What is in force in one worker, read from the objects that serve requests.

    ``workspace_rows`` holds the different numbers of rows, smallest first: those that the builders let a plan use and
    those that their tensors have room for. One number means that all agree; there is none without MLA builders, and
    ``workspace_bytes`` and ``workspace_alignment`` are None then.
    Counters grow from engine start: ``context_chunks`` once a step, ``workspace_entries`` once a step and layer,
    ``area_plans`` once a plan, ``area_limited`` once a plan of several chunks whose limit was below the one that
    the engine reserved for at its start.
    """

    refused: str | None
    workspace_rows: list[int]
    workspace_bytes: int | None
    workspace_alignment: int | None
    builders: int
    kv_blocks: int | None
    cpu_chunked_prefill: bool
    prefill_chunk_size: int | None
    prefill_area_limit: int | None
    context_chunks: int
    workspace_entries: int
    area_plans: int
    area_limited: int


class SchedulerReport(TypedDict):
    """What is in force in the scheduler, and counters since they were last read.

    ``max_step_tokens`` and ``max_running_requests`` are the largest of any step since the last report. ``steps`` and
    ``long_prefill_cuts`` grow from engine start; the latter counts how often the threshold alone cut a prefill.
    """

    refused: str | None
    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int
    steps: int
    max_step_tokens: int
    max_running_requests: int
    long_prefill_cuts: int
