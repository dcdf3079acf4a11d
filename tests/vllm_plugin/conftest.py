"""What the plugin reads of vLLM's objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


def vllm_config(
    *,
    max_model_len: int = 16_384,
    max_num_seqs: int = 4,
    block_size: int = 16,
    dcp: int = 1,
    interleave: int = 1,
    index_topk: int = 2048,
    **settings: Any,
) -> Any:
    """What the sizing rules and our settings read of a ``VllmConfig``."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=max_model_len, hf_text_config=SimpleNamespace(index_topk=index_topk)
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        cache_config=SimpleNamespace(block_size=block_size, num_gpu_blocks=100),
        parallel_config=SimpleNamespace(decode_context_parallel_size=dcp, cp_kv_cache_interleave_size=interleave),
        additional_config={"chunksmith": settings} if settings else {},
    )


def builder(rows: int, *, dcp: int = 1, manager: Any = None) -> Any:
    tensor = torch.empty((rows + (rows // dcp if dcp > 1 else 0), 576), dtype=torch.bfloat16)
    return SimpleNamespace(
        chunked_prefill_workspace=tensor,
        chunked_prefill_workspace_size=rows,
        dcp_world_size=dcp,
        dcp_manager=manager,
        _prefill_backend=object(),
    )


def runner(*builders: Any, **config: Any) -> Any:
    """A model runner with one group for each builder, and one group of a backend that has no workspace."""
    groups = [[SimpleNamespace(metadata_builders=[one])] for one in builders]
    return SimpleNamespace(
        attn_groups=[*groups, [SimpleNamespace(metadata_builders=[SimpleNamespace()])]],
        vllm_config=vllm_config(**config),
    )
