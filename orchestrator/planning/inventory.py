"""The buffers of one engine that depend on prefill chunking: what, how large, and when vLLM counts it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from orchestrator.planning import buffers
from orchestrator.planning.chunks import area_limit
from orchestrator.planning.layers import C128A, LayerType
from orchestrator.planning.models import INDEXER_ENTRY_BYTES
from orchestrator.planning.shape import EngineShape

_LOGITS_BYTES: Final = 512 * buffers.MIB
_QUANTISED: Final = ("fp8", "fp8_ds_mla", "nvfp4_ds_mla")


class Counted(StrEnum):
    """When a buffer weighs on the KV cache."""

    #: Made before the profile, kept: taken from the KV cache in full.
    BEFORE = "before KV sizing"
    #: Made and freed in the profile: taken from the KV cache if it is the largest of its kind.
    PEAK = "profiled peak"
    #: Made after the profile, kept: taken from what the utilisation leaves free.
    AFTER = "after KV sizing"
    #: Made and freed while serving, and larger than the profile saw.
    UNSEEN = "while serving"


@dataclass(frozen=True)
class Buffer:
    """One buffer of a rank."""

    name: str
    bytes: int
    counted: Counted
    rows: int | None = None


def buffers_of(shape: EngineShape, *, flash_attention_2: bool = False, sm100: bool = False) -> list[Buffer]:
    """List the buffers of an engine that depend on prefill chunking, largest effect first within each kind.

    Args:
        shape: The engine.
        flash_attention_2: Whether the prefill kernel pads values to the width of keys.
        sm100: Whether the GPU is of the SM100 family with FlashAttention 4, where sparse models get a top-k mask.
    """
    if shape.model.is_v4:
        return _v4_buffers(shape)
    model, rows = shape.model, shape.workspace_rows()
    element = 1 if shape.use_prefill_query_quantization and shape.dcp == 1 and not model.is_sparse else 2
    gather = buffers.gather_buffer(rows, latent=model.latent, dcp=shape.dcp, element=element)
    found = [
        Buffer("gather buffer", gather * shape.num_ubatches, Counted.AFTER, rows),
        Buffer("profile placeholder", placeholder_bytes(shape), Counted.PEAK, shape.workspace_rows(sparse=False)),
        Buffer("context chunk", transient_bytes(shape, flash_attention_2=flash_attention_2), Counted.UNSEEN, rows),
    ]
    if shape.dcp > 1 and shape.direct_dcp:
        found += _dcp_buffers(shape, rows)
    if model.is_sparse:
        found += _sparse_buffers(shape, sm100=sm100)
    return found


def _dcp_buffers(shape: EngineShape, rows: int) -> list[Buffer]:
    model, ubatches = shape.model, shape.num_ubatches
    tokens = buffers.dcp_tokens(
        max_num_batched_tokens=shape.max_num_batched_tokens,
        max_num_seqs=shape.max_num_seqs,
        num_speculative_tokens=shape.num_speculative_tokens,
        max_cudagraph_capture_size=shape.max_cudagraph_capture_size,
    )
    kv = buffers.dcp_kv_gather(rows, latent=model.latent, num_ubatches=ubatches)
    query = buffers.dcp_query_gather(
        tokens, dcp=shape.dcp, heads_per_rank=shape.heads_per_rank, latent=model.latent, num_ubatches=ubatches
    )
    found = [
        Buffer("direct KV gather", kv, Counted.AFTER, rows),
        Buffer("direct query gather", query, Counted.BEFORE),
    ]
    if shape.dcp_comm_backend == "a2a":
        exchange = buffers.dcp_all_to_all(
            tokens,
            dcp=shape.dcp,
            heads_per_rank=shape.heads_per_rank,
            kv_lora_rank=model.kv_lora_rank,
            num_ubatches=ubatches,
        )
        found.append(Buffer("direct all-to-all", exchange, Counted.BEFORE))
    return found


def _sparse_buffers(shape: EngineShape, *, sm100: bool) -> list[Buffer]:
    model = shape.model
    factor = shape.sparse_mla_prefill_workspace_factor
    # The factor became a flag in 0.32; before it was 5 at any length.
    factor = buffers.sparse_factor(shape.length, factor) if shape.release >= (0, 32, 0) else 5
    keys = buffers.indexer_keys(shape.length, factor=factor, entry=INDEXER_ENTRY_BYTES)
    found = [
        Buffer("indexer keys", keys, Counted.BEFORE),
        Buffer("indexer logits, at most", _LOGITS_BYTES, Counted.PEAK),
    ]
    if shape.kv_cache_dtype == "fp8_ds_mla":
        found.append(
            Buffer(
                "fp8 up-conversion",
                buffers.sparse_upconvert(shape.length, factor=factor, latent=model.latent),
                Counted.BEFORE,
            )
        )
    dims = (model.heads, model.kv_lora_rank, model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim)
    if sm100 and dims in buffers.TOPK_MASK_SHAPES and shape.kv_cache_dtype not in _QUANTISED:
        found.append(Buffer("top-k mask", buffers.TOPK_MASK_BYTES * shape.num_ubatches, Counted.AFTER))
    return found


def _v4_buffers(shape: EngineShape) -> list[Buffer]:
    found = [Buffer("shared workspace", locked_workspace_bytes(shape), Counted.BEFORE)]
    if any(kind == C128A for kind, _ in shape.model.layer_types):
        topk = buffers.c128a_topk(shape.length, shape.max_num_batched_tokens)
        found.append(Buffer("C128A indices", topk, Counted.AFTER))
    return found


def placeholder_bytes(shape: EngineShape) -> int:
    """Bytes of the profile's placeholder. vLLM sizes it by the dense rule for sparse models too (issue 57170)."""
    model = shape.model
    return buffers.profile_placeholder(
        shape.workspace_rows(sparse=False),
        heads_per_rank=shape.heads_per_rank,
        qk_nope_head_dim=model.qk_nope_head_dim,
        v_head_dim=model.v_head_dim,
    )


def transient_bytes(shape: EngineShape, *, flash_attention_2: bool = False) -> int:
    """Bytes that a context chunk of all workspace rows holds at its peak; 0 for DeepSeek-V4."""
    model = shape.model
    return buffers.context_transient(
        shape.workspace_rows(),
        heads_per_rank=shape.heads_per_rank,
        qk_nope_head_dim=model.qk_nope_head_dim,
        qk_rope_head_dim=model.qk_rope_head_dim,
        v_head_dim=model.v_head_dim,
        pads_value=flash_attention_2,
    )


def reserved_bytes(shape: EngineShape, kind: LayerType) -> int:
    """Bytes that the warm-up of a DeepSeek-V4 layer asks of the shared workspace."""
    topk = (shape.model.index_topk or 0) if kind.has_compressed else 0
    return _v4_request(shape, kind, topk)


def worst_bytes(shape: EngineShape, kind: LayerType) -> int:
    """Bytes that a layer's largest legal batch asks of the shared workspace.

    Larger than its warm-up's request for C128A, whose indices cover all compressed rows and not ``index_topk`` of them.
    """
    topk = (shape.model.index_topk or 0) if kind.has_compressed else 0
    return _v4_request(shape, kind, buffers.c128a_width(shape.length) if kind == C128A else topk)


def _v4_request(shape: EngineShape, kind: LayerType, topk: int) -> int:
    model = shape.model
    return buffers.v4_gather(
        area_of(shape, kind),
        head_dim=model.latent,
        num_tokens=shape.max_num_batched_tokens,
        index_width=buffers.v4_index_width(topk, window=model.window, max_image_tokens=shape.max_image_tokens),
        index_buffers=shape.release >= (0, 27, 0),
    )


def area_of(shape: EngineShape, kind: LayerType) -> int:
    """Area limit of a layer type in an engine, in rows."""
    return area_limit(
        prefill_chunk_size=shape.prefill_chunk_size,
        compress_ratio=kind.compress_ratio,
        max_model_len=shape.length,
        window=shape.model.window,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        has_compressed=kind.has_compressed,
    )


def locked_workspace_bytes(shape: EngineShape, *, other_users: int = 0) -> int:
    """Bytes of DeepSeek-V4's shared workspace once it is locked: the largest request of any user, for each slot.

    Args:
        shape: The engine, of a DeepSeek-V4 model.
        other_users: Largest request of the workspace's other users, such as the experts, in bytes.
    """
    largest = max(reserved_bytes(shape, kind) for kind, _ in shape.model.layer_types)
    return max(largest, other_users) * shape.num_ubatches * shape.num_lanes
