"""Sizes of the layers, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from orchestrator.engines.kernel_lab.workspace import TensorRequest, WorkspaceManager, round_up
from orchestrator.planning import LayerType

INDEX_STEP: Final = 128
"""The index tensor's width is a multiple of it. Source: ``_SPARSE_PREFILL_TOPK_ALIGNMENT`` of vLLM."""


@dataclass(frozen=True, kw_only=True)
class DenseShape:
    """Sizes of an MLA layer, under DeepSeek's names.

    Attributes:
        index_topk: Tokens that a query selects; None for a dense layer.
    """

    heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    index_topk: int | None = None

    @property
    def latent(self) -> int:
        """Elements of a cached row."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def key(self) -> int:
        """Elements of a key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def expansion_flops(self, rows: int) -> int:
        """Operations that expand latent rows to keys and values of all heads."""
        return 2 * rows * self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)

    def attention_flops(self, pairs: int) -> int:
        """Operations of attention over so many pairs of query and key, all heads."""
        return 2 * pairs * self.heads * (self.key + self.v_head_dim)


@dataclass(frozen=True, kw_only=True)
class V4Shape:
    """What all DeepSeek-V4 layers of an engine have in common.

    Attributes:
        width: Elements of a row, which is key and value.
        topk: Compressed rows that a query selects; a ratio of 128 takes all that it sees.
    """

    heads: int
    width: int
    window: int
    topk: int
    max_model_len: int
    max_num_batched_tokens: int

    def topk_of(self, kind: LayerType) -> int:
        """Most compressed rows of a query in a layer of a kind."""
        if not kind.has_compressed:
            return 0
        if kind.compress_ratio >= INDEX_STEP:
            return round_up(-(-self.max_model_len // kind.compress_ratio), INDEX_STEP)
        return self.topk

    def index_width(self, kind: LayerType) -> int:
        """Columns of the combined indices."""
        return round_up(self.topk_of(kind) + self.window, INDEX_STEP)

    def reserve(self, manager: WorkspaceManager, kind: LayerType, dtype: torch.dtype, chunk_size: int) -> None:
        """Make the workspace as large as ``chunk_size`` requests of the largest width need it.

        vLLM's dummy run reserves the columns of ``index_topk`` for every kind; a layer of ratio 128 may need more,
        which counts here.
        """
        pool = -(-self.max_model_len // kind.compress_ratio) if kind.has_compressed else 0
        width = pool + self.window + self.max_num_batched_tokens
        manager.get_simultaneous(*self.request(kind, dtype, chunk_size, width))

    def request(self, kind: LayerType, dtype: torch.dtype, requests: int, rows: int) -> tuple[TensorRequest, ...]:
        """What a chunk takes from the workspace: rows, combined indices and their lengths."""
        tokens = self.max_num_batched_tokens
        return (
            ((requests, rows, self.width), dtype),
            ((tokens, self.index_width(kind)), torch.int32),
            ((tokens,), torch.int32),
        )
