"""Several workers' reports as one, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.engines import Counters, InForce
from orchestrator.engines.reports import counters, in_force
from orchestrator.vllm_plugin import SchedulerReport, WorkerReport

SCHEDULER = SchedulerReport(
    refused=None,
    max_num_batched_tokens=1024,
    max_num_seqs=8,
    long_prefill_token_threshold=0,
    steps=10,
    max_step_tokens=700,
    max_running_requests=3,
    long_prefill_cuts=2,
)


def worker(**changes: Any) -> WorkerReport:
    report: Any = {
        "refused": None,
        "workspace_rows": [512],
        "workspace_bytes": 1000,
        "workspace_alignment": 16,
        "builders": 1,
        "kv_blocks": 100,
        "cpu_chunked_prefill": False,
        "prefill_chunk_size": 4,
        "prefill_area_limit": None,
        "context_chunks": 0,
        "workspace_entries": 0,
        "area_plans": 0,
        "area_limited": 0,
    }
    assert changes.keys() <= report.keys()
    assert report.keys() == WorkerReport.__annotations__.keys()
    report.update(changes)
    made: WorkerReport = report
    return made


def test_workers_that_agree_are_in_force_as_one() -> None:
    assert in_force(([worker(), worker()], SCHEDULER)) == InForce(
        workspace_rows=512,
        workspace_bytes=1000,
        workspace_alignment=16,
        builders=1,
        kv_blocks=100,
        prefill_chunk_size=4,
        max_num_batched_tokens=1024,
        max_num_seqs=8,
        long_prefill_token_threshold=0,
    )


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([worker(workspace_rows=[256, 512])], "workspace_rows: 256 to 512"),
        ([worker(), worker(workspace_rows=[1024])], "workspace_rows: 512 to 1024"),
        ([worker(), worker(prefill_chunk_size=2)], "prefill_chunk_size: 2 to 4"),
        ([worker(), worker(), worker(prefill_area_limit=900)], "prefill_area_limit: none to 900"),
        ([worker(), worker(cpu_chunked_prefill=True)], "cpu_chunked_prefill: False to True"),
    ],
)
def test_workers_or_builders_that_differ_are_named(workers: list[WorkerReport], said: str) -> None:
    assert in_force((workers, SCHEDULER)).disagreement == f"{said} over the workers and their builders"


def test_a_stage_without_mla_layers_does_not_count() -> None:
    bare = worker(workspace_rows=[], workspace_bytes=None, workspace_alignment=None, builders=0)
    assert in_force(([bare, worker()], SCHEDULER)) == in_force(([worker()], SCHEDULER))
    before = ([bare, worker(context_chunks=3)], SCHEDULER)
    after = ([bare, worker(context_chunks=8)], SCHEDULER)
    assert counters(before, after).context_chunks == 5
    nothing = in_force(([bare], SCHEDULER))
    assert (nothing.workspace_rows, nothing.workspace_bytes, nothing.disagreement) == (None, None, None)


def test_counters_are_differences_and_maxima_are_not() -> None:
    before = ([worker(context_chunks=1, workspace_entries=2, area_plans=3, area_limited=1)], SCHEDULER)
    later: SchedulerReport = {**SCHEDULER, "steps": 15, "max_step_tokens": 600, "long_prefill_cuts": 6}
    after = ([worker(context_chunks=4, workspace_entries=10, area_plans=7, area_limited=3)], later)
    assert counters(before, after) == Counters(
        context_chunks=3,
        workspace_entries=8,
        area_plans=4,
        area_limited=2,
        long_prefill_cuts=4,
        scheduler_steps=5,
        max_step_tokens=600,
        max_running_requests=3,
    )
