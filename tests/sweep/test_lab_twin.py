"""The layers that stand for a model on the rungs below its own engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sweep import SweepSpec
from orchestrator.sweep.lab_twin import NoTwinError, twin_args, twin_spec
from orchestrator.sweep.planned import why_not_planned
from tests.sweep.studies import make_spec

SIZES = {"kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 24}


def spec_of(model: str, **args: Any) -> SweepSpec:
    given = {"max_model_len": 8192, "max_num_batched_tokens": 1024, "max_num_seqs": 4, **args}
    return make_spec(model=model, engine={"args": {name: value for name, value in given.items() if value is not None}})


def folder(path: Path, **config: Any) -> str:
    (path / "config.json").write_text(json.dumps({**SIZES, "num_attention_heads": 8, **config}))
    return str(path)


def test_a_shipped_model_by_its_hub_name() -> None:
    args = twin_args(spec_of("deepseek-ai/DeepSeek-V3", tensor_parallel_size=8, block_size=64), {})
    assert (args.layers, args.heads, args.tokens_per_block) == ({"dense": 1}, 16, 64)
    assert (args.max_model_len, args.max_num_batched_tokens, args.max_num_seqs) == (8192, 1024, 4)


def test_ranks_that_share_a_context_keep_the_heads_of_a_rank() -> None:
    args = twin_args(spec_of("deepseek-ai/DeepSeek-V3", tensor_parallel_size=8, decode_context_parallel_size=4), {})
    assert args.heads // args.decode_context_parallel_size == 128 // 8


def test_deepseek_v4_keeps_the_proportion_of_its_layers() -> None:
    args = twin_args(spec_of("deepseek-ai/DeepSeek-V4-Flash"), {})
    assert args.layers == {"swaonly": 1, "c4a": 2, "c128a": 2}
    assert (args.head_dim, args.window, args.index_topk) == (512, 128, 512)


def test_a_model_folder(tmp_path: Path) -> None:
    assert twin_args(spec_of(folder(tmp_path)), {}).layers == {"dense": 1}
    args = twin_args(spec_of(folder(tmp_path, index_topk=512)), {})
    assert (args.layers, args.index_topk, args.heads, args.v_head_dim) == ({"sparse": 1}, 512, 8, 24)


def test_the_tiny_model() -> None:
    assert twin_args(spec_of("tiny-mla"), {}).heads == 2


def test_values_of_an_engine_group_go_in() -> None:
    assert twin_args(spec_of("tiny-mla"), {"block_size": 32, "max_num_seqs": None}).tokens_per_block == 32


def test_the_twin_is_a_study_of_the_lab() -> None:
    spec = spec_of("tiny-mla")
    twin = twin_spec(spec)
    assert twin.is_lab
    assert twin.engine_config().args["device"] == "cpu"
    assert (twin.space, twin.workload, twin.seed) == (spec.space, spec.workload, spec.seed)
    with pytest.raises(NoTwinError, match="the study's own engine is the kernel lab"):
        twin_spec(twin)


@pytest.mark.parametrize(
    ("model", "args", "reason"),
    [
        ("org/model", {}, "the shape of org/model is not known"),
        ("tiny-mla", {"max_num_seqs": None}, "engine.args.max_num_seqs is not given"),
        ("tiny-mla", {"max_num_seqs": 2048}, "max_num_seqs must be at most max_num_batched_tokens 1024"),
    ],
)
def test_what_is_not_known(model: str, args: dict[str, Any], reason: str) -> None:
    spec = spec_of(model, **args)
    with pytest.raises(NoTwinError, match=reason):
        twin_args(spec, {})
    assert reason in (why_not_planned(spec) or "")


def test_a_config_without_mla(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 8}))
    with pytest.raises(NoTwinError, match=r"the model's config.json has no kv_lora_rank"):
        twin_args(spec_of(str(tmp_path)), {})


def test_a_knob_that_it_cannot_reckon_with() -> None:
    spec = make_spec(model="tiny-mla", space={"gpu_memory_utilization": {"scope": "engine", "values": [0.8, 0.9]}})
    assert why_not_planned(spec) == "it says nothing about gpu_memory_utilization"


def test_a_metric_that_it_has_no_figure_for() -> None:
    spec = spec_of("tiny-mla").model_copy(
        update={"objective": make_spec(objective={"metric": "request_goodput"}).objective}
    )
    assert why_not_planned(spec) == "arithmetic has no figure for request_goodput"
