"""What the reports of vLLM's processes say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.engines.contract import Counters, InForce
from orchestrator.vllm_plugin import SchedulerReport, WorkerReport

Reports = tuple[Sequence[WorkerReport], SchedulerReport]
"""One report of each worker, and the scheduler's."""

_Counted = Literal["context_chunks", "workspace_entries", "area_plans", "area_limited"]


def in_force(reports: Reports) -> InForce:
    """What is in force in all workers, and where two of them differ."""
    workers, scheduler = reports
    rows = {rows for worker in workers for rows in worker["workspace_rows"]}
    by_name: dict[str, set[int | None]] = {
        "workspace_rows": {*rows},
        "prefill_chunk_size": {worker["prefill_chunk_size"] for worker in workers},
        "prefill_area_limit": {worker["prefill_area_limit"] for worker in workers},
        "cpu_chunked_prefill": {worker["cpu_chunked_prefill"] for worker in workers},
    }
    differing = [name for name, values in by_name.items() if len(values) > 1]
    return InForce(
        workspace_rows=min(rows, default=None),
        workspace_bytes=max(worker["workspace_bytes"] or 0 for worker in workers) or None,
        workspace_alignment=_least({worker["workspace_alignment"] for worker in workers}),
        builders=max(worker["builders"] for worker in workers),
        kv_blocks=workers[0]["kv_blocks"],
        prefill_chunk_size=_least(by_name["prefill_chunk_size"]),
        prefill_area_limit=_least(by_name["prefill_area_limit"]),
        max_num_batched_tokens=scheduler["max_num_batched_tokens"],
        max_num_seqs=scheduler["max_num_seqs"],
        long_prefill_token_threshold=scheduler["long_prefill_token_threshold"],
        cpu_chunked_prefill=all(worker["cpu_chunked_prefill"] for worker in workers),
        disagreement=_spread(differing[0], by_name[differing[0]]) if differing else None,
    )


def counters(before: Reports, after: Reports) -> Counters:
    """What was counted between two reports. All workers count the same, but for stages of a pipeline that have fewer
    MLA layers or none: the largest count stands."""
    (old_workers, old), (new_workers, new) = before, after

    def most(name: _Counted) -> int:
        return max(now[name] - then[name] for then, now in zip(old_workers, new_workers, strict=True))

    return Counters(
        context_chunks=most("context_chunks"),
        workspace_entries=most("workspace_entries"),
        area_plans=most("area_plans"),
        area_limited=most("area_limited"),
        long_prefill_cuts=new["long_prefill_cuts"] - old["long_prefill_cuts"],
        scheduler_steps=new["steps"] - old["steps"],
        max_step_tokens=new["max_step_tokens"],
        max_running_requests=new["max_running_requests"],
    )


def _least(values: set[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _spread(name: str, values: set[int | None]) -> str:
    known = [value for value in values if value is not None]
    low = "none" if None in values else min(known)
    return f"{name}: {low} to {max(known)} over the workers and their builders"
