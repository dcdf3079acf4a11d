from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.engines.serve.command import _ON_ONLY
from orchestrator.search import Point, engine_config, serve_command
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.vllm_plugin.arguments import engine_arguments

BASE = EngineConfig(
    model="org/model",
    args={"max_model_len": 4096, "block_size": 16},
    env={"OMP_NUM_THREADS": "1"},
    plugin=PluginSettings(cpu_chunked_prefill=True),
)


def test_a_groups_values_go_to_vllm_or_to_the_plugin() -> None:
    group = {"block_size": 32, "mla_workspace_rows": 256, "tensor_parallel_size": None}
    config = engine_config(BASE, group)
    assert config.args == {"max_model_len": 4096, "block_size": 32}
    assert config.plugin == PluginSettings(cpu_chunked_prefill=True, mla_workspace_rows=256)
    assert (config.model, config.env) == (BASE.model, BASE.env)
    assert engine_config(BASE, {}) == BASE


def test_a_value_goes_where_its_name_says() -> None:
    base = dataclasses.replace(BASE, args={**BASE.args, "compilation_config": {"mode": 3, "pass_config": {"a": 1}}})
    group = {
        "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": 256,
        "VLLM_USE_DIRECT_DCP_A2A": True,
        "OMP_NUM_THREADS": None,
        "compilation_config.cudagraph_mode": "PIECEWISE",
        "compilation_config.pass_config.b": False,
        "compilation_config.level": None,
        "additional_config.mine.deep": 0.5,
        "workload": "long",
        "load.concurrency": 4,
    }
    config = engine_config(base, group)
    assert config.env == {
        "OMP_NUM_THREADS": "1",
        "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": "256",
        "VLLM_USE_DIRECT_DCP_A2A": "1",
    }
    assert config.args == {
        "max_model_len": 4096,
        "block_size": 16,
        "compilation_config": {"mode": 3, "pass_config": {"a": 1, "b": False}, "cudagraph_mode": "PIECEWISE"},
        "additional_config": {"mine": {"deep": 0.5}},
    }
    # The common configuration is not changed by it.
    assert base.args["compilation_config"] == {"mode": 3, "pass_config": {"a": 1}}
    words, env = serve_command(base, group)
    assert env == config.env
    assert words[-1] == '{"chunksmith": {"cpu_chunked_prefill": true}, "mine": {"deep": 0.5}}'
    assert not any("workload" in word or "load" in word for word in words)


def arguments(args: dict[str, Any], point: Point | None = None, plugin: PluginSettings | None = None) -> list[str]:
    """What stands after the model."""
    words, _ = serve_command(EngineConfig(model="m", args=args, plugin=plugin or PluginSettings()), point or {})
    assert words[0] == "m"
    return words[1:]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, []),
        ({"enforce_eager": True}, ["--enforce-eager"]),
        ({"enforce_eager": False}, ["--no-enforce-eager"]),
        ({"disable_log_stats": True}, ["--disable-log-stats"]),
        ({"disable_log_stats": False}, []),
        ({"max_model_len": 4096}, ["--max-model-len", "4096"]),
        ({"gpu_memory_utilization": 0.5}, ["--gpu-memory-utilization", "0.5"]),
        ({"dtype": "bfloat16"}, ["--dtype", "bfloat16"]),
        ({"quantization": None}, []),
        ({"cudagraph_capture_sizes": [1, 2]}, ["--cudagraph-capture-sizes", "1", "2"]),
        ({"hf_overrides": {"b": 1, "a": [True]}}, ["--hf-overrides", '{"a": [true], "b": 1}']),
        ({"additional_config": {}}, []),
        ({"additional_config": {"mine": False}}, ["--additional-config", '{"mine": false}']),
    ],
)
def test_engine_arguments_become_flags(args: dict[str, Any], words: list[str]) -> None:
    assert arguments(args) == words


def test_a_point_becomes_the_arguments_that_start_an_engine_at_it() -> None:
    point = {"mla_workspace_rows": 256, "max_num_batched_tokens": 512, "prefill_area_limit": None}
    words, env = serve_command(
        EngineConfig(
            model="m",
            args={"max_num_batched_tokens": 1024, "additional_config": {"mine": 1}},
            env={"A": "b c"},
            plugin=PluginSettings(cpu_chunked_prefill=True),
        ),
        point,
    )
    additional = {"chunksmith": {"cpu_chunked_prefill": True, "mla_workspace_rows": 256}, "mine": 1}
    assert words == ["m", "--max-num-batched-tokens", "512", "--additional-config", json.dumps(additional)]
    assert env == {"A": "b c"}


@pytest.fixture(scope="module")
def parse() -> Any:
    """The parser of ``vllm serve``."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser()).parse_args


@pytest.mark.vllm
def test_vllm_reads_the_flags_back_as_the_arguments(parse: Any) -> None:
    args: dict[str, KnobValue | list[int] | dict[str, Any]] = {
        "dtype": "bfloat16",
        "max_model_len": 16384,
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 4,
        "gpu_memory_utilization": 0.5,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "hf_overrides": {"num_hidden_layers": 2},
        "cudagraph_capture_sizes": [1, 2, 4],
        "long_prefill_token_threshold": 64,
        "seed": None,
    }
    words, _ = serve_command(EngineConfig(model="org/model", args=args), {"mla_workspace_rows": 256})
    parsed = parse(words)
    assert parsed.model_tag == "org/model"
    assert parsed.additional_config == {"chunksmith": {"mla_workspace_rows": 256}}
    for name, value in args.items():
        if value is not None:
            assert getattr(parsed, name) == value, name


@pytest.mark.vllm
def test_vllm_reads_every_switch_back_on_and_off(parse: Any) -> None:
    from vllm import AsyncEngineArgs

    switches = {field.name for field in dataclasses.fields(AsyncEngineArgs) if isinstance(field.default, bool)}
    # This one has no flag in 0.32.
    switches &= engine_arguments() - {"enable_mm_processor_stats"}
    assert len(switches) > 50
    assert switches > _ON_ONLY
    for name in sorted(switches):
        for value in (True, False):
            parsed = parse(["m", *arguments({name: value})])
            assert getattr(parsed, name) == value, name
