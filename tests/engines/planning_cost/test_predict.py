"""Predictions beside the real kernel lab, whose counters they must equal, and what follows from them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.engines.kernel_lab import LabArgs, lab_args
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.engines.planning_cost import NOMINAL, PlanningCost, Roofs, Work
from orchestrator.measurement import block_metrics
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule, random_requests
from tests.engines.kernel_lab.labs import TINY

ARGS: dict[str, Any] = {
    **TINY,
    "dtype": "bfloat16",
    "max_model_len": 2048,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "block_size": 16,
}
ALONE, TOGETHER = Schedule(concurrency=1), Schedule()

COUNTED = ("chunks", "launches", "gathered_rows", "padded_rows", "gather_bytes", "flops")


def args_of(layers: Mapping[str, int], **more: Any) -> LabArgs:
    block = 256 if "c128a" in layers else 16
    return lab_args({**ARGS, "block_size": block, "layers": dict(layers), **more})


def requests(*lengths: int, output_len: int = 1) -> list[Request]:
    return [
        one
        for number, length in enumerate(lengths)
        for one in random_requests(1, input_len=length, output_len=output_len, seed=[number], vocab_size=1024)
    ]


@pytest.mark.parametrize(
    ("layers", "points"),
    [
        ({"dense": 2}, [{"mla_workspace_rows": 64}, {"mla_workspace_rows": 4096, "max_num_batched_tokens": 128}]),
        ({"sparse": 1}, [{"mla_workspace_rows": 100}]),
        ({"dense": 1, "c4a": 2, "swaonly": 1}, [{"prefill_area_limit": 600}, {"long_prefill_token_threshold": 100}]),
        ({"c128a": 1, "c4a": 1}, [{"chunk_order": "fixed", "prefill_chunk_size": 2}, {"chunk_order": "optimal"}]),
    ],
)
def test_the_kernel_lab_counts_the_same(
    tmp_path: Path, layers: dict[str, int], points: list[dict[str, KnobValue]]
) -> None:
    args, prompts = args_of(layers), requests(600, 90, 333, 40)
    engine = KernelLabEngine("lab-planned", str(tmp_path / "lab.log"))
    engine.start(EngineConfig(model="none", args=args.model_dump()))
    try:
        for live, schedule in itertools.product(points, (ALONE, TOGETHER)):
            engine.retune(live)
            block = engine.run(prompts, schedule)
            planned = PlanningCost(args, live=live).predict(prompts, schedule)
            assert planned.steps == block.counters.scheduler_steps
            for name in COUNTED:
                assert getattr(planned.work, name) == getattr(block.lab, name), (name, live, schedule)
            assert planned.work.chunks > 0
    finally:
        engine.stop()


def test_a_smaller_workspace_costs_launches_and_saves_bytes() -> None:
    args, prompts = args_of({"dense": 1}), requests(1500)
    small, large = (
        PlanningCost(args, live={"mla_workspace_rows": rows}).predict(prompts, ALONE) for rows in (128, 2048)
    )
    assert small.work.chunks > large.work.chunks
    assert small.work.flops == large.work.flops
    assert small.duration_s > large.duration_s
    assert small.workspace_bytes < large.workspace_bytes


def test_more_steps_expand_the_context_more_often() -> None:
    args, prompts = args_of({"dense": 1}), requests(1500)
    few, many = (
        PlanningCost(args, live={"max_num_batched_tokens": tokens}).predict(prompts, ALONE) for tokens in (256, 64)
    )
    assert many.steps == 4 * few.steps
    assert many.work.flops > few.work.flops
    assert many.duration_s > few.duration_s


def test_metrics_follow_from_the_timelines() -> None:
    planned = PlanningCost(args_of({"dense": 1})).predict(requests(500, 300, output_len=3), TOGETHER)
    metrics = block_metrics(planned.requests, planned.duration_s, slo=None, gpus=0)
    first, second = planned.requests
    assert metrics["mean_ttft_ms"] == pytest.approx(
        1000 * ((first.first_token_s or 0) + (second.first_token_s or 0)) / 2
    )
    assert metrics["median_tpot_ms"] is not None
    assert metrics["request_throughput"] == pytest.approx(2 / planned.duration_s)


def test_a_closed_loop_serves_one_after_the_other() -> None:
    planned = PlanningCost(args_of({"dense": 1})).predict(requests(300, 300, 300), ALONE)
    ends = [one.end_s for one in planned.requests]
    assert [one.send_s for one in planned.requests[1:]] == ends[:2]


def test_an_open_loop_waits_for_what_is_due() -> None:
    schedule = Schedule(times_s=[5.0, 0.0])
    planned = PlanningCost(args_of({"dense": 1})).predict(requests(300, 300), schedule)
    late, early = planned.requests
    assert (late.arrival_s, early.arrival_s) == (5.0, 0.0)
    assert late.first_token_s is not None
    assert late.first_token_s > 5.0 > (early.end_s or 9.0)


def test_a_conversation_waits_for_the_turn_before() -> None:
    first, second = requests(300, 200)
    turn = dataclasses.replace(second, follows=0, think_s=2.0)
    planned = PlanningCost(args_of({"dense": 1})).predict([first, turn], TOGETHER)
    assert planned.requests[1].arrival_s == pytest.approx((planned.requests[0].end_s or 0) + 2.0)


def test_ranks_share_the_context_and_exchange_rows() -> None:
    prompts = requests(1500)
    one = PlanningCost(args_of({"dense": 1}, heads=2)).predict(prompts, ALONE)
    two = PlanningCost(args_of({"dense": 1}, heads=2, decode_context_parallel_size=2)).predict(prompts, ALONE)
    assert one.work.all_gather_bytes == 0 < two.work.all_gather_bytes
    assert two.work.gathered_rows == one.work.gathered_rows
    assert two.work.flops < one.work.flops


def test_roofs() -> None:
    measured = Roofs.of_resolved({"roof": {"gflop_per_s": 100.0, "copy_gb_per_s": 10.0}})
    assert measured.is_measured
    assert Roofs.of_resolved({}) == NOMINAL
    assert not NOMINAL.is_measured
    work = Work(flops=10**11, gather_bytes=5 * 10**9, all_gather_bytes=5 * 10**9, padded_rows=10**9)
    assert measured.seconds(work) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="gflop_per_s must be a finite number above 0"):
        Roofs(gflop_per_s=0.0, copy_gb_per_s=1.0)
    with pytest.raises(ValueError, match="launch_s must be a finite number from 0 up"):
        Roofs(gflop_per_s=1.0, copy_gb_per_s=1.0, launch_s=-1.0)


def test_the_workspace_of_the_start_stays_reserved() -> None:
    args = args_of({"c4a": 1})
    start = PlanningCost(args).workspace_bytes
    assert PlanningCost(args, live={"prefill_chunk_size": 2}).workspace_bytes == start
    assert PlanningCost(args, plugin=PluginSettings(prefill_chunk_size=2)).workspace_bytes * 2 == start


def test_wrong_live_values() -> None:
    args = args_of({"dense": 1})
    with pytest.raises(ValueError, match="block_size is no live knob"):
        PlanningCost(args, live={"block_size": 32})
    with pytest.raises(ValueError, match="max_num_seqs must be a whole number, got 'many'"):
        PlanningCost(args, live={"max_num_seqs": "many"})
