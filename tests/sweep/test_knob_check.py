from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.engines import BlockResult, Counters, EngineConfig, EngineInfo, InForce
from orchestrator.measurement import MeasuredBlock, Role
from orchestrator.search import Knob, Scope, Space
from orchestrator.sweep.knob_check import equals_baseline, no_effect, not_in_force
from orchestrator.sweep.rows import PlacedBlock
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
    index_topk=None,
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
    scope: Scope = "live",
    **others: Any,
) -> str | None:
    """The verdict on one knob at a value, for a block with some things changed."""
    space = Space((Knob(knob, scope, (value,)),))
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


def test_a_sparse_workspace_has_the_rows_of_its_own_rule() -> None:
    """Without rounding, and at most 4 requests times the top-k."""
    sparse = dataclasses.replace(INFO, index_topk=64)
    for cap, rows in [(250, 250), (1024, 256), (1, 16), (None, 256)]:
        assert check("mla_workspace_rows", cap, info=sparse, force={"workspace_rows": rows}) is None
        assert check("mla_workspace_rows", cap, info=sparse, force={"workspace_rows": rows + 16}) is not None
    assert check("mla_workspace_rows", 1024, info=sparse, force={"workspace_rows": 128}, max_num_seqs=2) is None


def test_workers_must_agree() -> None:
    force = {"workspace_rows": 256, "disagreement": "workspace_rows: 256 to 512 over the workers and their builders"}
    assert check("mla_workspace_rows", 256, force=force) == force["disagreement"]


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


RESOLVED = {
    "model_config": {"dtype": "torch.bfloat16", "max_model_len": 2048},
    "cache_config": {"block_size": 16, "enable_prefix_caching": False, "gpu_memory_utilization": 0.9},
    "parallel_config": {"tensor_parallel_size": 1},
    "scheduler_config": {"enable_chunked_prefill": False},
    "attention_config": {"backend": "AttentionBackendEnum.TRITON_MLA", "mla_prefill_backend": None},
    "compilation_config": {"cudagraph_mode": "PIECEWISE", "pass_config": {"fuse_norm_quant": True}},
    "environment": {"VLLM_USE_DIRECT_DCP_KV_GATHER": True, "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": 512},
    "additional_config": {"seed": 7},
}


@pytest.mark.parametrize(
    ("knob", "value", "seen"),
    [
        ("block_size", 16, None),
        ("block_size", 32, "16"),
        ("enable_chunked_prefill", True, "False"),
        ("enable_chunked_prefill", False, None),
        ("enable_prefix_caching", True, "False"),
        ("tensor_parallel_size", 2, "1"),
        ("gpu_memory_utilization", 0.9, None),
        ("dtype", "bfloat16", None),
        ("dtype", "float16", "torch.bfloat16"),
        ("dtype", "auto", None),
        ("block_size", None, None),  # left to vLLM
        ("attention_backend", "TRITON_MLA", None),
        ("attention_backend", "FLASHMLA", "AttentionBackendEnum.TRITON_MLA"),
        ("attention_config.mla_prefill_backend", "FLASH_ATTN", "None"),
        ("compilation_config.cudagraph_mode", "PIECEWISE", None),
        ("compilation_config.cudagraph_mode", "FULL_AND_PIECEWISE", "PIECEWISE"),
        ("compilation_config.pass_config.fuse_norm_quant", False, "True"),
        ("compilation_config.pass_config.other", False, None),  # vLLM has no such field
        ("kernel_config.backend", "aiter", None),  # stands in no part
        ("VLLM_USE_DIRECT_DCP_KV_GATHER", 1, None),
        ("VLLM_USE_DIRECT_DCP_KV_GATHER", 0, "True"),
        ("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", 256, "512"),
        ("OMP_NUM_THREADS", 2, None),  # vLLM does not read it
        ("compilation_config", 3, None),  # stands in no part
        ("seed", 8, None),  # neither does this
    ],
)
def test_an_engine_argument_must_stand_in_vllms_configuration(knob: str, value: Any, seen: str | None) -> None:
    found = check(knob, value, scope="engine", info=dataclasses.replace(INFO, resolved=RESOLVED))
    assert found == (None if seen is None else f"{knob}: asked {value}; in force is {seen}")


def placed(role: Role, point: dict[str, Any], info: EngineInfo, force: InForce, counted: dict[str, int]) -> PlacedBlock:
    result = BlockResult(
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        requests=[],
        in_force=force,
        counters=dataclasses.replace(COUNTED, **counted),
    )
    block = MeasuredBlock(role=role, pair=0, dropped=False, seed=1, retune_s=0.0, result=result, metrics={})
    return PlacedBlock(block=block, info=info, point=point)


def effect(
    candidate: dict[str, Any],
    baseline: dict[str, Any] | None = None,
    *,
    force: dict[str, Any] | None = None,
    counted: dict[str, int] | None = None,
    baseline_counted: dict[str, int] | None = None,
    info: EngineInfo = INFO,
) -> str | None:
    """The verdict on a candidate's block: live values other than ``force`` are in force as asked."""
    space = Space(tuple(Knob(name, "live", (None, value)) for name, value in candidate.items()))
    theirs = baseline or dict.fromkeys(candidate)

    def in_force(point: dict[str, Any]) -> InForce:
        live = {name: value for name, value in point.items() if value is not None and hasattr(START, name)}
        return dataclasses.replace(START, **live)

    return no_effect(
        space,
        placed("candidate", candidate, info, dataclasses.replace(in_force(candidate), **(force or {})), counted or {}),
        placed("baseline", theirs, INFO, in_force(theirs), baseline_counted or {}),
    )


def test_other_workspace_rows_are_an_effect() -> None:
    assert effect({"mla_workspace_rows": 256}, force={"workspace_rows": 256}) is None
    assert effect({"mla_workspace_rows": 65_536}) == (
        "equals the baseline: 16384 workspace rows, and no limit in which the two differ was reached "
        "(8 steps, largest 512 tokens, 2 requests)"
    )
    # Also where another knob made them so: fewer requests need fewer pages.
    assert effect({"max_num_seqs": 3}, force={"workspace_rows": 8192}) is None


@pytest.mark.parametrize(
    ("knob", "counter", "low", "high"),
    [("max_num_batched_tokens", "max_step_tokens", 256, 512), ("max_num_seqs", "max_running_requests", 2, 3)],
)
def test_a_scheduler_limit_must_have_been_reached(knob: str, counter: str, low: int, high: int) -> None:
    at_low, above = {counter: low}, {counter: low + 1}
    assert effect({knob: low}, {knob: high}, counted=at_low, baseline_counted=above) is None
    assert effect({knob: high}, {knob: low}, counted=above, baseline_counted=at_low) is None
    for one, other in [(low, high), (high, low), (low, low)]:
        assert effect({knob: one}, {knob: other}, counted=at_low, baseline_counted=at_low) is not None
    assert effect({knob: high}, {knob: high}, counted=above, baseline_counted=above) is not None


def test_a_threshold_must_have_cut_a_prefill() -> None:
    knob, cut = "long_prefill_token_threshold", {"long_prefill_cuts": 1}
    assert effect({knob: 64}, counted=cut) is None
    assert effect({knob: 64}) == f"{knob}: 64 cut no prefill of the block"
    # That another knob shows an effect does not help it.
    assert effect({knob: 64, "mla_workspace_rows": 256}, force={"workspace_rows": 256}) is not None
    # Off is an effect where the baseline cuts.
    assert effect({knob: 0}, {knob: 64}, baseline_counted=cut) is None
    assert effect({knob: 0}, {knob: 64}) is not None
    assert effect({knob: 64}, {knob: 64}, counted=cut, baseline_counted=cut) is not None


def test_an_area_limit_must_have_limited_a_plan() -> None:
    assert effect({"prefill_area_limit": 900}, counted={"area_limited": 1}) is None
    found = effect({"prefill_area_limit": 900})
    assert found == "prefill_area_limit: no plan of the block was split by 900"
    assert (
        effect({"prefill_area_limit": None}, {"prefill_area_limit": 900}, baseline_counted={"area_limited": 1}) is None
    )


def test_a_chunk_size_must_have_limited_a_plan_or_reserved_another_buffer() -> None:
    assert effect({"prefill_chunk_size": 2}, counted={"area_limited": 1}) is None
    assert effect({"prefill_chunk_size": 2}) is not None
    larger = dataclasses.replace(INFO, in_force=dataclasses.replace(START, prefill_chunk_size=8))
    assert effect({"prefill_chunk_size": 8}, info=larger) is None


def test_one_knob_with_an_effect_is_enough() -> None:
    both = {"mla_workspace_rows": 256, "max_num_seqs": 3}
    assert effect(both, force={"workspace_rows": 256}) is None
    assert effect(both) is not None


def test_an_engine_argument_must_be_another_in_vllms_configuration() -> None:
    other = dataclasses.replace(INFO, resolved={"cache_config": {"block_size": 16}})
    assert effect({"block_size": 16}, info=other) is None
    assert effect({"compilation_level": 3}) is None, "what vLLM's configuration does not tell is taken at its word"
    assert effect({"compilation_level": None}) is not None
    same = dataclasses.replace(INFO, resolved={})
    assert effect({"compilation_level": 3}, {"compilation_level": 3}, info=same) is not None


@pytest.mark.parametrize(
    ("point", "baseline", "equal"),
    [
        ({"mla_workspace_rows": 65_536, "max_num_batched_tokens": 1024}, {}, True),
        ({"mla_workspace_rows": None, "max_num_batched_tokens": None}, {}, True),
        ({"mla_workspace_rows": 32_768, "max_num_batched_tokens": 1024}, {}, False),
        ({"mla_workspace_rows": 65_536, "max_num_batched_tokens": 512}, {}, False),
        ({"mla_workspace_rows": 256}, {"mla_workspace_rows": 256}, True),
        ({"mla_workspace_rows": None}, {"mla_workspace_rows": 256}, False),
        ({"block_size": 16}, {}, False),  # vLLM's own value is not known yet
        ({"dtype": "bfloat16"}, {}, True),
    ],
)
def test_a_point_that_names_the_baselines_values_is_known_before_any_engine(
    point: dict[str, Any], baseline: dict[str, Any], equal: bool
) -> None:
    base = EngineConfig(model="m", args={"max_num_batched_tokens": 1024, "dtype": "bfloat16"})
    assert equals_baseline(point, {**dict.fromkeys(point), **baseline}, base) is equal


def test_a_cap_common_to_all_engines_is_the_baselines() -> None:
    base = EngineConfig(model="m", plugin=PluginSettings(mla_workspace_rows=256))
    no_cap = {"mla_workspace_rows": None}
    assert equals_baseline({"mla_workspace_rows": 256}, no_cap, base)
    assert not equals_baseline({"mla_workspace_rows": 65_536}, no_cap, base)
