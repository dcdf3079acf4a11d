"""Bytes of each buffer that MLA prefill brings, one function a buffer.

Sizes are per rank. Source of each: the code of vLLM 0.32 that its docstring names; the numbers in the tests are those
of vLLM's own comments, pull requests and logs.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1024**2
GIB: Final = 1024**3

_WORKSPACE_PIECE: Final = 256
_TOPK_ALIGNMENT: Final = 128
_BF16: Final = 2
_INT32: Final = 4
_FLOAT32: Final = 4

#: ``GLOBAL_TOPK_MASK_MAX_BYTES`` of the sparse backends.
TOPK_MASK_BYTES: Final = 128 * MIB

#: Heads, latent, key without rotary, rotary, value: the models for which a top-k mask is allocated (on SM100, with
#: FlashAttention 4 and an unquantised cache). Source: ``_is_masked_mha_available``.
TOPK_MASK_SHAPES: Final = ((128, 512, 128, 64, 128), (64, 512, 192, 64, 256), (64, 512, 256, 0, 256))


def gather_buffer(rows: int, *, latent: int, dcp: int = 1, element: int = _BF16) -> int:
    """The workspace itself: gathered latent rows, and under DCP ``rows / dcp`` more for the local share.

    Source: ``MLACommonMetadataBuilder.__init__``. There is one per MLA attention group and ubatch.

    Args:
        rows: Workspace rows, at least 0.
        latent: Elements of a row.
        dcp: Decode context parallel ranks, at least 1.
        element: Bytes of an element; 1 when prefill queries are quantised, else 2.
    """
    return (rows + (rows // dcp if dcp > 1 else 0)) * latent * element


def dcp_tokens(
    *, max_num_batched_tokens: int, max_num_seqs: int, num_speculative_tokens: int, max_cudagraph_capture_size: int
) -> int:
    """Tokens that the decode buffers of DCP are made for (``get_dcp_workspace_max_num_tokens``)."""
    decode = max(max_num_seqs * (1 + num_speculative_tokens), max_cudagraph_capture_size)
    return min(max_num_batched_tokens, decode)


def dcp_kv_gather(rows: int, *, latent: int, element: int = _BF16, num_ubatches: int = 1) -> int:
    """Double-buffered symmetric memory of the direct KV gather (``DirectDCPKVGatherWorkspace``)."""
    return num_ubatches * 2 * rows * latent * element


def dcp_all_to_all(
    tokens: int, *, dcp: int, heads_per_rank: int, kv_lora_rank: int, element: int = _BF16, num_ubatches: int = 1
) -> int:
    """Double-buffered outputs and log-sum-exps of the direct all-to-all (``DirectDCPA2AWorkspace``)."""
    return num_ubatches * 2 * dcp * tokens * heads_per_rank * (kv_lora_rank * element + _FLOAT32)


def dcp_query_gather(
    tokens: int, *, dcp: int, heads_per_rank: int, latent: int, element: int = _BF16, num_ubatches: int = 1
) -> int:
    """Gathered queries of all ranks (``DirectDCPQGatherWorkspace``)."""
    return num_ubatches * tokens * dcp * heads_per_rank * latent * element


def profile_placeholder(rows: int, *, heads_per_rank: int, qk_nope_head_dim: int, v_head_dim: int) -> int:
    """Up-projected context that vLLM's memory profile allocates and frees (``MLAAttention.forward_impl``)."""
    return rows * heads_per_rank * (qk_nope_head_dim + v_head_dim) * _BF16


def context_transient(
    rows: int,
    *,
    heads_per_rank: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    pads_value: bool = False,
) -> int:
    """What one full context chunk really holds at its peak: up-projection, joined keys and perhaps padded values.

    More than the profile's placeholder, which lacks the joined keys. Source: ``_compute_prefill_context``.

    Args:
        rows: Workspace rows of the chunk.
        heads_per_rank: Attention heads of a rank.
        qk_nope_head_dim: Elements.
        qk_rope_head_dim: Elements.
        v_head_dim: Elements.
        pads_value: Whether the kernel wants values as wide as keys (FlashAttention 2).
    """
    key = qk_nope_head_dim + qk_rope_head_dim
    elements = qk_nope_head_dim + v_head_dim + key + (key if pads_value else 0)
    return rows * heads_per_rank * elements * _BF16


def sparse_factor(max_model_len: int, factor: int | None) -> int:
    """``sparse_mla_prefill_workspace_factor`` in force: 5 up to 256 Ki tokens, else 2 (vLLM 0.32; before always 5)."""
    if factor is not None:
        return factor
    return 5 if max_model_len <= 256 * 1024 else 2


def sparse_upconvert(max_model_len: int, *, factor: int, latent: int) -> int:
    """FlashMLA sparse: the fp8 cache unpacked to bf16 (``get_prefill_workspace_size``)."""
    return max_model_len * factor * latent * _BF16


def indexer_keys(max_model_len: int, *, factor: int, entry: int) -> int:
    """Gathered keys of the indexer (``get_max_prefill_buffer_size``): 8 times the factor, 40 by default."""
    return max_model_len * (576 * _BF16 // entry) * factor * entry


def v4_gather(area: int, *, head_dim: int, num_tokens: int, index_width: int, index_buffers: bool = True) -> int:
    """One request for DeepSeek-V4's shared workspace: gathered rows, combined top-k indices and their lengths.

    Each piece is rounded up to 256 bytes. Source: ``get_simultaneous`` and ``_forward_prefill`` of the FlashMLA path.

    Args:
        area: Rows that the chunk spans.
        head_dim: Elements of a row.
        num_tokens: ``max_num_batched_tokens``.
        index_width: From :func:`v4_index_width`.
        index_buffers: False for vLLM up to 0.26, which took the indices from elsewhere.
    """
    pieces = [area * head_dim * _BF16]
    if index_buffers:
        pieces += [num_tokens * index_width * _INT32, num_tokens * _INT32]
    return sum(_round_up(piece, _WORKSPACE_PIECE) for piece in pieces)


def v4_index_width(topk: int, *, window: int, max_image_tokens: int = 0) -> int:
    """Combined indices of a token: selected rows, window and image span, rounded up to 128."""
    return _round_up(topk + window + max_image_tokens, _TOPK_ALIGNMENT)


def c128a_width(max_model_len: int) -> int:
    """Compressed rows that a C128A layer attends to at most: all of them, rounded up to 128."""
    return _round_up(-(-max_model_len // 128), _TOPK_ALIGNMENT)


def c128a_topk(max_model_len: int, max_num_batched_tokens: int) -> int:
    """Two index buffers of C128A layers (``DeepseekV4SparseMLAMetadataBuilder``)."""
    return 2 * max_num_batched_tokens * c128a_width(max_model_len) * _INT32


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
