"""A kernel lab that starts and serves in moments, and what is asked of it."""

from __future__ import annotations

from typing import Any

from orchestrator.engines import EngineConfig
from orchestrator.workloads import Request, random_requests

ARGS: dict[str, Any] = {
    "layers": {"dense": 2},
    "heads": 8,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "max_model_len": 1024,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "block_size": 16,
    "dtype": "float32",
}


def config(ranks: int) -> EngineConfig:
    """Over so many ranks, each of which keeps four tokens in a row."""
    spread = {"decode_context_parallel_size": ranks, "cp_kv_cache_interleave_size": 4}
    return EngineConfig(model="none", args={**ARGS, **(spread if ranks > 1 else {})})


def requests(count: int = 5, output_len: int = 3) -> list[Request]:
    """Longer than a step, so that every one has a context to gather."""
    return random_requests(count, input_len=400, output_len=output_len, seed=[7], vocab_size=1024)
