from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.constraints import CONSTRAINTS, violations
from orchestrator.planning.models import model_named
from orchestrator.planning.shape import EngineShape


def engine(name: str = "deepseek-v3", **flags: Any) -> EngineShape:
    return EngineShape(**{"model": model_named(name), "max_num_seqs": 64, **flags})


def broken(shape: EngineShape) -> list[str]:
    return [rule.name for rule in violations(shape)]


# Flags that break one rule and no other, and a neighbour that keeps it.
BREAKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dcp-divides-tp": ({"tp": 8, "dcp": 3}, {"dcp": 4}),
    "dcp-fits-pcp": ({"tp": 8, "pcp": 2, "dcp": 8}, {"dcp": 16}),
    "interleave-divides-block": ({"tp": 8, "dcp": 8, "interleave": 48}, {"interleave": 32}),
    "dcp-divides-workspace": (
        {"vllm": "0.27.1", "tp": 6, "dcp": 6, "heads-from": "kimi-k3"},
        {"vllm": "0.28.0"},
    ),
    "workspace-holds-pages": ({"vllm": "0.10.2", "max_num_seqs": 4096}, {"vllm": "0.11.0"}),
    "heads-divide-tp": ({"tp": 6}, {"tp": 16}),
    "batch-covers-seqs": ({"max_num_batched_tokens": 32}, {"max_num_batched_tokens": 64}),
    "batch-covers-length": ({"enable_chunked_prefill": False}, {"max_model_len": 8192}),
    "threshold-within-length": ({"long_prefill_token_threshold": 200_000}, {"long_prefill_token_threshold": 163_840}),
    "active-within-seqs": ({"max_num_active_seqs": 65}, {"vllm": "0.30.0"}),
    "utilisation-is-a-share": ({"gpu_memory_utilization": 1.01}, {"gpu_memory_utilization": 1.0}),
    "block-fits-backend": ({"attention_backend": "CUTLASS_MLA"}, {"block_size": 128}),
    "backend-returns-lse": ({"tp": 2, "dcp": 2, "attention_backend": "CPU_MLA"}, {"dcp": 1}),
    "flashinfer-dcp-interleave": (
        {"tp": 2, "dcp": 2, "attention_backend": "FLASHINFER_MLA", "interleave": 2},
        {"interleave": 1},
    ),
    "speculative-interleave": (
        {"tp": 2, "dcp": 2, "attention_backend": "FLASHMLA", "interleave": 2, "num_speculative_tokens": 1},
        {"num_speculative_tokens": 0},
    ),
    "packed-cache-for-sparse-dcp": (
        {"tp": 2, "dcp": 2, "attention_backend": "FLASHMLA_SPARSE"},
        {"kv_cache_dtype": "fp8_ds_mla"},
    ),
    "cache-dtype-fits-backend": (
        {"attention_backend": "FLASH_ATTN_MLA", "kv_cache_dtype": "fp8"},
        {"kv_cache_dtype": "auto"},
    ),
    "quantised-queries-need-fp8": ({"use_prefill_query_quantization": True}, {"kv_cache_dtype": "fp8"}),
    "all-to-all-needs-dcp": ({"vllm": "0.28.0", "dcp_comm_backend": "a2a"}, {"vllm": "0.29.0"}),
    "ubatches-alone": ({"enable_dbo": True, "pp": 2}, {"pp": 1}),
    "sparse-factor-least": ({"sparse_mla_prefill_workspace_factor": 1}, {"vllm": "0.31.0"}),
    "v4-without-dcp": ({"heads-from": "deepseek-v4-pro", "tp": 8, "dcp": 8}, {"dcp": 1}),
}


def test_every_rule_has_a_case() -> None:
    assert list(BREAKS) == [rule.name for rule in CONSTRAINTS]


@pytest.mark.parametrize("name", BREAKS)
def test_a_rule_is_broken_alone_and_kept_by_its_neighbour(name: str) -> None:
    flags, kept = BREAKS[name]
    model = flags.get("heads-from", "deepseek-v3")
    flags = {key: value for key, value in flags.items() if key != "heads-from"}
    assert broken(engine(model, **flags)) == [name]
    assert broken(engine(model, **{**flags, **kept})) == []


@pytest.mark.parametrize("rule", CONSTRAINTS, ids=lambda rule: rule.name)
def test_a_message_is_one_line_with_the_versions(rule: Any) -> None:
    flags = {key: value for key, value in BREAKS[rule.name][0].items() if key != "heads-from"}
    message = rule.message(engine(BREAKS[rule.name][0].get("heads-from", "deepseek-v3"), **flags))
    assert "\n" not in message
    assert f"(vLLM {rule.since[0]}.{rule.since[1]}.{rule.since[2]} " in message


@pytest.mark.vllm
@pytest.mark.parametrize(("tp", "pcp", "dcp"), [(8, 1, 3), (8, 1, 4), (8, 2, 2), (8, 2, 4), (8, 2, 16), (4, 4, 16)])
def test_the_ranks_are_judged_as_by_vllm_itself(tp: int, pcp: int, dcp: int) -> None:
    config = pytest.importorskip("vllm.config")
    sizes = {
        "tensor_parallel_size": tp,
        "prefill_context_parallel_size": pcp,
        "decode_context_parallel_size": dcp,
        "distributed_executor_backend": "external_launcher",
    }
    accepted = True
    try:
        config.ParallelConfig(**sizes)
    except ValueError as error:
        accepted = "dcp" not in str(error).lower()
    assert accepted == (broken(engine(tp=tp, pcp=pcp, dcp=dcp)) == [])
