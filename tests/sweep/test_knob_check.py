from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.engines import BlockResult, Counters, EngineInfo, InForce
from orchestrator.search import Knob, Space
from orchestrator.sweep.knob_check import not_in_force
from orchestrator.vllm_plugin import PluginSettings

START = InForce(
    workspace_rows=16384,
    max_num_batched_tokens=1024,
    max_num_seqs=4,
    long_prefill_token_threshold=0,
    prefill_chunk_size=4,
)
INFO = EngineInfo(
    engine_id="engine",
    kind="vllm",
    version="0.32.0",
    host="host",
    log_path="log",
    vocab_size=10_240,
    max_model_len=2048,
    block_size=16,
    dcp=1,
    interleave=1,
    sparse=False,
    in_force=START,
    resolved={},
    start_s=1.0,
)
COUNTED = Counters(
    context_chunks=8, workspace_entries=16, area_plans=3, scheduler_steps=8, max_step_tokens=512, max_running_requests=2
)


def check(
    knob: str,
    value: Any,
    *,
    force: dict[str, Any] | None = None,
    counted: dict[str, Any] | None = None,
    plugin: PluginSettings | None = None,
    info: EngineInfo = INFO,
    **others: Any,
) -> str | None:
    """The verdict on one knob at a value, for a block with some things changed."""
    space = Space((Knob(knob, "live", (value,)),))
    block = BlockResult(
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        requests=[],
        in_force=dataclasses.replace(START, **(force or {})),
        counters=dataclasses.replace(COUNTED, **(counted or {})),
    )
    return not_in_force(space, {knob: value, **others}, plugin or PluginSettings(), info, block)


def test_a_workspace_cap_must_give_the_rows_of_the_arithmetic() -> None:
    assert check("mla_workspace_rows", 256, force={"workspace_rows": 256}) is None
    found = check("mla_workspace_rows", 256)
    assert found == "mla_workspace_rows: asked 256, which gives 256; in force is 16384"
    # Rounded up to whole blocks of 16 rows.
    assert check("mla_workspace_rows", 100, force={"workspace_rows": 112}) is None
    # With a context of 16 tokens the rule wants 4 blocks for each request: a live knob in the same space lowers that.
    short = dataclasses.replace(INFO, max_model_len=16)
    assert check("mla_workspace_rows", 1024, info=short, force={"workspace_rows": 256}) is None
    assert check("mla_workspace_rows", 1024, info=short, force={"workspace_rows": 128}, max_num_seqs=2) is None


def test_without_a_cap_the_rows_are_those_of_the_engines_start() -> None:
    # 8 times 2048 tokens and 4 times 4 requests of 16 rows: vLLM's own size, below its 64 Ki.
    assert check("mla_workspace_rows", None) is None
    assert check("mla_workspace_rows", None, force={"workspace_rows": 256}) is not None
    started_with = PluginSettings(mla_workspace_rows=256)
    assert check("mla_workspace_rows", None, force={"workspace_rows": 256}, plugin=started_with) is None
    assert check("mla_workspace_rows", None, plugin=started_with) is not None


def test_the_workspace_must_have_been_used() -> None:
    found = check("mla_workspace_rows", 256, force={"workspace_rows": 256}, counted={"workspace_entries": 0})
    assert found is not None
    assert "never entered the context path" in found
    assert "(8 steps, largest 512 tokens)" in found


def test_the_sparse_rule_is_not_guessed() -> None:
    sparse = dataclasses.replace(INFO, sparse=True)
    assert check("mla_workspace_rows", 256, info=sparse) is None
    assert check("mla_workspace_rows", 256, info=sparse, counted={"workspace_entries": 0}) is not None


@pytest.mark.parametrize("knob", ["prefill_chunk_size", "prefill_area_limit"])
def test_an_area_knob_must_be_in_force_and_have_planned_something(knob: str) -> None:
    assert check(knob, 2, force={knob: 2}) is None
    assert check(knob, 2, force={knob: 3}) == f"{knob}: asked 2, which gives 2; in force is 3"
    assert check(knob, 2, force={knob: 2}, counted={"area_plans": 0}) == f"{knob}: no prefill was planned by area"
    # Without a value: what the study's engines start with, where the spec says so.
    assert check(knob, None, force={knob: 9}) is None
    assert check(knob, None, force={knob: 9}, plugin=PluginSettings.model_validate({knob: 8})) is not None


@pytest.mark.parametrize(
    ("knob", "counter"),
    [("max_num_batched_tokens", "max_step_tokens"), ("max_num_seqs", "max_running_requests")],
)
def test_a_scheduler_limit_must_be_in_force_and_no_step_may_exceed_it(knob: str, counter: str) -> None:
    assert check(knob, 3, force={knob: 3}, counted={counter: 3}) is None
    assert check(knob, 3, force={knob: 4}, counted={counter: 3}) == f"{knob}: asked 3, which gives 3; in force is 4"
    exceeded = check(knob, 3, force={knob: 3}, counted={counter: 4})
    assert exceeded is not None
    assert "the largest step had 4" in exceeded
    # An engine that counted no step at all has shown nothing.
    assert check(knob, 3, force={knob: 3}, counted={counter: 0}) is not None


@pytest.mark.parametrize("knob", ["max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"])
def test_a_scheduler_knob_without_a_value_is_back_at_its_start(knob: str) -> None:
    assert check(knob, None) is None
    assert check(knob, None, force={knob: 1}) is not None


def test_the_threshold_must_be_in_force() -> None:
    knob = "long_prefill_token_threshold"
    assert check(knob, 64, force={knob: 64}) is None
    assert check(knob, 64) == f"{knob}: asked 64, which gives 64; in force is 0"
    assert check(knob, 0) is None


def test_vllms_own_arguments_are_left_to_vllm() -> None:
    assert check("tensor_parallel_size", 2) is None
