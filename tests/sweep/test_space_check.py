from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import UserError
from orchestrator.sweep import load_spec
from tests.sweep.studies import content

ENGINE = {"scope": "engine", "values": [1, 2]}


def error_of(folder: Path, changes: dict[str, Any]) -> str:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    with pytest.raises(UserError) as caught:
        load_spec(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def knob(*values: Any, scope: str = "engine", **more: Any) -> dict[str, Any]:
    return {"scope": scope, "values": list(values), **more}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A circle.
        (
            {
                "space__block_size": knob(16, when="tensor_parallel_size > 1"),
                "space__tensor_parallel_size": knob(1, 2, when="block_size is not None"),
            },
            "space: the conditions of these knobs go in a circle: block_size -> tensor_parallel_size -> block_size",
        ),
        (
            {
                "space__block_size": knob(16, multiple_of="cp_kv_cache_interleave_size"),
                "space__cp_kv_cache_interleave_size": knob(16, multiple_of="block_size"),
            },
            "space: the conditions of these knobs go in a circle: block_size -> cp_kv_cache_interleave_size -> block",
        ),
        ({"space__block_size": knob(16, when="block_size > 1")}, "space: the conditions of these knobs go in a circle"),
        # Nothing is left.
        (
            {"constraints": {"rules": ["max_num_seqs > 0", "mla_workspace_rows > 8192"]}},
            "space: no point is left: constraints.rules.1 (mla_workspace_rows > 8192) rules out all 12 points",
        ),
        (
            {"constraints": {"rules": ["mla_workspace_rows > 1024", "mla_workspace_rows < 2048"]}},
            "space: no point is left: constraints.rules.0 (mla_workspace_rows > 1024) and constraints.rules.1 "
            "(mla_workspace_rows < 2048) together rule out all 12 points; no one of them does alone",
        ),
        (
            {
                "space": {"tensor_parallel_size": knob(5, 7)},
                "baseline": {"tensor_parallel_size": 4},
                "engine__args__block_size": 64,
                "constraints": {"use": ["vllm-engine"], "model": "kimi-k3"},
            },
            "space: no point is left: heads-divide-tp rules out all 2 points",
        ),
        (
            {"space__max_num_seqs": knob(2048, scope="engine"), "engine__args__max_num_seqs": 8},
            "space: no point is left: max-num-seqs (max_num_seqs <= max_num_batched_tokens) rules out all 12 points",
        ),
        (
            {
                "space__block_size": knob(16, 24, multiple_of="cp_kv_cache_interleave_size"),
                "engine__args__cp_kv_cache_interleave_size": 32,
            },
            "space.block_size: none of its values is a multiple of cp_kv_cache_interleave_size",
        ),
        (
            {
                "space__block_size": knob(16, multiple_of="cp_kv_cache_interleave_size"),
                "space__cp_kv_cache_interleave_size": knob(48, 16, multiple_of="max_num_partial"),
            },
            "space.cp_kv_cache_interleave_size.multiple_of: unknown knob 'max_num_partial'",
        ),
        (
            {
                "space__block_size": knob(16, 40, multiple_of="cp_kv_cache_interleave_size"),
                "space__cp_kv_cache_interleave_size": knob(16, 40),
                "constraints": {"rules": ["block_size != cp_kv_cache_interleave_size"]},
            },
            "space: no point is left: constraints.rules.0 (block_size != cp_kv_cache_interleave_size) rules out all",
        ),
        (
            {
                **{f"space__{name}": {"scope": "engine", "low": 1, "high": 100} for name in ("seed", "block_size")},
                "space__max_num_seqs": {"scope": "live", "low": 1, "high": 4},
                "constraints": {"rules": ["seed > 0", "seed < block_size", "default(block_size, 0) < seed"]},
            },
            "space: no point is left: constraints.rules.1 (seed < block_size) and constraints.rules.2 "
            "(default(block_size, 0) < seed) together rule out ",
        ),
        # The baseline that vLLM would refuse.
        (
            {
                "space__decode_context_parallel_size": knob(1, 2),
                "engine__args": {
                    "tensor_parallel_size": 2,
                    "decode_context_parallel_size": 3,
                    "block_size": 64,
                    "max_num_seqs": 4,
                    "max_num_batched_tokens": 1024,
                },
                "constraints": {"use": ["vllm-dcp"], "model": "deepseek-v3"},
            },
            "baseline: use: dcp-divides-tp: dcp must divide tp, got dcp=3, tp=2 (vLLM 0.10.2 and later)",
        ),
        # Two names of one thing.
        (
            {"space__max-num-seqs": knob(1, 2), "space__max_num_seqs": knob(1, 2, scope="live")},
            "space: max-num-seqs and max_num_seqs set the same thing, max_num_seqs: keep one",
        ),
        (
            {"space__attention_backend": knob("TRITON_MLA"), "space__attention_config.backend": knob("TRITON_MLA")},
            "space: attention_backend and attention_config.backend set the same thing, attention_backend: keep one",
        ),
        (
            {
                "engine__args__attention_backend": "TRITON_MLA",
                "space__attention_config.backend": knob("TRITON_MLA", "FLASHMLA"),
            },
            "space.attention_config.backend: engine.args.attention_backend sets the same thing: use one name for both",
        ),
        (
            {
                "engine__args__attention_config": {"backend": "TRITON_MLA"},
                "space__attention_backend": knob("TRITON_MLA", "FLASHMLA"),
            },
            "space.attention_backend: engine.args.attention_config.backend sets the same thing: use one name for both",
        ),
        (
            {"space__additional_config.chunksmith.mla_workspace_rows": knob(1)},
            "space.additional_config.chunksmith.mla_workspace_rows: settings of the plugin are knobs of their own",
        ),
        # Names that vLLM does not know.
        ({"space__blok_size": ENGINE}, "space: unknown knob 'blok_size'; did you mean 'block_size'?"),
        ({"space__max-num-seqs": ENGINE}, "space: unknown knob 'max-num-seqs'; did you mean 'max_num_seqs'?"),
        ({"space__tp": ENGINE}, "space: unknown knob 'tp'; did you mean 'tensor_parallel_size'?"),
        (
            {"space__sparse_mla_prefill_workspace_factor": ENGINE},
            "space: unknown knob 'sparse_mla_prefill_workspace_factor'; did you mean "
            "'attention_config.sparse_mla_prefill_workspace_factor'?",
        ),
        (
            {"space__attention_config.mla_prefil_backend": ENGINE},
            "space: unknown key of attention_config 'mla_prefil_backend'; did you mean 'mla_prefill_backend'?",
        ),
        ({"space__block_size.x": ENGINE}, "space.block_size.x: block_size of vLLM 0.32.0 has no keys of its own"),
        ({"space__atention_config.x": ENGINE}, "space: unknown knob 'atention_config.x'"),
        (
            {"space__compilation_config": knob("x")},
            "space.compilation_config: is a mapping; its keys can be knobs, as ",
        ),
        (
            {"space__VLLM_SPARSE_INDEXER_MAX_LOGIT_MB": ENGINE},
            "space: unknown environment variable of vLLM 'VLLM_SPARSE_INDEXER_MAX_LOGIT_MB'; did you mean "
            "'VLLM_SPARSE_INDEXER_MAX_LOGITS_MB'?",
        ),
        # Scopes.
        (
            {"space__VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": knob(1, scope="live")},
            "space.VLLM_SPARSE_INDEXER_MAX_LOGITS_MB.scope: must be engine; live is possible for ",
        ),
        ({"space__block_size": knob(16, scope="load")}, "space.block_size.scope: must be engine"),
        ({"space__max_num_seqs": knob(2, scope="load")}, "space.max_num_seqs.scope: must be live or engine"),
        ({"space__load.concurrency": knob(2)}, "space.load.concurrency.scope: must be load"),
        # Expressions.
        (
            {"space__block_size": knob(16, when="__import__('os')")},
            "space.block_size.when: \"__import__('os')\", column 1: this call is not allowed; allowed: names, ",
        ),
        (
            {"constraints": {"rules": ["max_num_seqs <"]}},
            "constraints.rules.0: 'max_num_seqs <', column 15: ends too early; allowed: ",
        ),
        (
            {"constraints": {"rules": ["max_num_seq > 1"]}},
            "constraints.rules.0: unknown name 'max_num_seq'; did you mean 'max_num_seqs'?",
        ),
        (
            {"space__block_size": knob(16, when="workload.input_length > 1")},
            "space.block_size.when: unknown name 'workload.input_length'",
        ),
        (
            {"constraints": {"rules": ["mla_workspace_rows < 'x'"]}},
            "constraints.rules.0: \"mla_workspace_rows < 'x'\", column 1: 1024 < 'x' compares a number with ",
        ),
        (
            {"constraints": {"rules": ["mla_workspace_rows"]}},
            "constraints.rules.0: 'mla_workspace_rows' gives 1024; a rule is a condition, such as x <= 8",
        ),
        (
            {"space__block_size": knob(16, when="max_num_batched_tokens")},
            "space.block_size.when: 'max_num_batched_tokens' gives 512; it must be a condition",
        ),
        # Named sets and memory.
        (
            {"constraints": {"use": ["vllm_dcp"], "model": "kimi-k3"}, "engine__args__block_size": 64},
            "constraints.use: unknown set of constraints 'vllm_dcp'; did you mean 'vllm-dcp'?",
        ),
        ({"constraints": {"use": ["vllm-dcp"]}}, "constraints.model: is missing; use and memory need it: one of deep"),
        (
            {"constraints": {"use": ["vllm-dcp"], "model": "kimi-k4"}},
            "constraints.model: unknown model 'kimi-k4'; did you mean 'kimi-k",
        ),
        (
            {"constraints": {"use": ["vllm-dcp"], "model": "kimi-k3"}},
            "constraints.use: needs block_size under engine.args: where it is left out, vLLM chooses it",
        ),
        (
            {
                "constraints": {"memory": {"total_gib": 80, "weights_gib": "1 / 0"}, "model": "kimi-k3"},
                "engine__args__block_size": 64,
            },
            "constraints.memory.weights_gib: '1 / 0', column 1: / of 1, 0: division by zero",
        ),
        (
            {"constraints": {"memory": {"total_gib": 80}, "model": "kimi-k3"}},
            "constraints.memory.weights_gib: is missing",
        ),
        (
            {
                "constraints": {"memory": {"total_gib": 80, "weights_gib": 90}, "model": "kimi-k3"},
                "engine__args__block_size": 64,
            },
            "space: no point is left: memory (starts on a GPU and serves its worst batch, kimi-k3) rules out all 12",
        ),
        (
            {"constraints": {"memory": {"total_gib": -1, "weights_gib": 1}, "model": "kimi-k3"}},
            "constraints.memory.total_gib: should be a number of GiB, or an expression that gives one; got -1",
        ),
        (
            {"constraints": {"memory": {"total_gib": 80, "weights_gib": "1 +"}, "model": "kimi-k3"}},
            "constraints.memory.weights_gib: '1 +', column 4: ends too early; allowed: ",
        ),
        # Multiples.
        (
            {"space__block_size": knob(16, 0.5, multiple_of="max_num_seqs")},
            "space.block_size.multiple_of: needs whole numbers, got 0.5 of block_size",
        ),
        (
            {"space__block_size": knob(16, multiple_of="dtype"), "space__dtype": knob("half")},
            "space.block_size.multiple_of: needs whole numbers, got 'half' of dtype",
        ),
        # The load.
        (
            {"space__workload.promts": knob(2, scope="load")},
            "space.workload.promts: unknown field of a random workload 'promts'; did you mean 'prompts'?",
        ),
        ({"space__workload.prompts": knob(0, scope="load")}, "space: workload.prompts=0: input should be greater than"),
        (
            {"space__workload.input_len.low": knob(3, scope="load")},
            "space: workload.input_len.low=3: there is no field low",
        ),
        ({"space__workload.prompts": knob(2.5, scope="load")}, "space: workload.prompts=2.5: input should be a valid"),
        (
            {"space__workload.input_len": knob(4096, 9000, scope="load")},
            "workload at workload.input_len=9000: 9001 tokens of input and output exceed max_model_len 8192",
        ),
        (
            {"space__workload.input_len": knob(512, scope="load")},
            "workload at workload.input_len=512.input_len: must be above 1024, the tokens of a scheduler step",
        ),
        (
            {"space__load": knob("fast", scope="load"), "loads": {"first": {"concurrency": 4}}},
            "space.load: unknown load 'fast'; did you mean 'first'? Allowed: first.",
        ),
        (
            {"workloads": {"long": {"prompts": 1, "input_len": 4096}}},
            "workloads: no knob chooses among them: add space.workload, or leave them out",
        ),
        (
            {
                "space__workload": knob("long", scope="load"),
                "workloads": {"long": {"prompts": 1, "input_len": 4096}},
                "constraints": {"rules": ["workload.prompts > 4"]},
            },
            "constraints.rules.0: workload.prompts is not one value where workload is a knob; compare workload itself",
        ),
        (
            {"space__load.concurrency": knob(1, 2, scope="load"), "baseline": {"load.concurrency": 1}},
            "baseline.load.concurrency: belongs to the load, which a pair shares: leave it out",
        ),
    ],
)
def test_each_mistake_is_one_line_before_any_engine_starts(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = error_of(tmp_path, changes)
    assert found[: len(message)] == message


@pytest.mark.parametrize(
    "changes",
    [
        {"space__compilation_config.cudagraph_mode": knob("PIECEWISE", "NONE")},
        {"space__additional_config.own.key": knob(1, 2)},
        {"space__hf_overrides.num_hidden_layers": knob(1, 2)},
        {"space__NCCL_P2P_LEVEL": knob("NVL", "SYS")},
        {"space__VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": knob(None, 256)},
        {"space__workload.prompts": knob(2, 4, scope="load"), "constraints": {"rules": ["workload.prompts < 4"]}},
        {"constraints": {"rules": ["default(block_size, 16) <= 64", "VLLM_X is None or VLLM_X > 3"]}},
        {"space__max_model_len": knob(4096, 8192), "space__workload.input_len": knob(3000, scope="load")},
        {"space__dtype": knob("half", when="compilation_config.level is None")},
    ],
)
def test_what_vllm_or_the_load_can_take_is_a_knob(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    spec = load_spec(path)
    assert spec.search_space().valid_points(10, seed=0)
