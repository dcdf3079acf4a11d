"""The shapes of models that the memory arithmetic needs, for the models that Chunksmith is used with."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from orchestrator.planning.layers import C4A, C128A, SWA_ONLY, LayerType

#: Bytes that the indexer of a sparse model keeps for a token and layer: 128 of fp8 and 4 of scale.
INDEXER_ENTRY_BYTES: Final = 132

#: Bytes of a token and layer in the packed cache of sparse backends: 512 of fp8, 16 of scales, 64 rotary in bf16.
PACKED_ENTRY_BYTES: Final = 656


@dataclass(frozen=True, kw_only=True)
class MlaModel:
    """A model with multi-head latent attention.

    Attributes:
        name: The name that commands take.
        attention_layers: Layers that keep a latent cache, or all attention layers of DeepSeek-V4.
        heads: Attention heads, over all ranks.
        kv_lora_rank: Elements of the latent vector without its rotary part.
        qk_rope_head_dim: Elements of the rotary part.
        qk_nope_head_dim: Elements of an up-projected key without its rotary part.
        v_head_dim: Elements of an up-projected value.
        max_model_len: Tokens, as published.
        index_topk: Tokens that a query selects; ``None`` for a dense model.
        window: Tokens of the sliding window; 0 without one.
        layer_types: DeepSeek-V4's kinds of layer and how many there are of each; empty for other models.
    """

    name: str
    attention_layers: int
    heads: int
    kv_lora_rank: int = 512
    qk_rope_head_dim: int = 64
    qk_nope_head_dim: int = 128
    v_head_dim: int = 128
    max_model_len: int
    index_topk: int | None = None
    window: int = 0
    layer_types: tuple[tuple[LayerType, int], ...] = ()

    @property
    def latent(self) -> int:
        """Elements of a workspace row."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def is_sparse(self) -> bool:
        """Whether a query attends to the tokens that an indexer selects, through a sparse MLA backend."""
        return self.index_topk is not None and not self.layer_types

    @property
    def is_v4(self) -> bool:
        """Whether the chunk planner of DeepSeek-V4 plans its prefill."""
        return bool(self.layer_types)

    def kv_bytes_per_block(self, block_size: int, kv_cache_dtype: str = "auto") -> int:
        """Bytes of one KV cache block over all layers that keep a latent cache.

        Kimi-K3's linear-attention layers keep a state of their own in pages that are not part of this.

        Args:
            block_size: Tokens in a block, at least 1.
            kv_cache_dtype: ``"auto"`` (two bytes an element), ``"fp8"`` (one) or ``"fp8_ds_mla"`` (656 a token).

        Raises:
            ValueError: for DeepSeek-V4, whose pages of several kinds share blocks, and for an unknown dtype.
        """
        if self.is_v4:
            raise ValueError(f"bytes_per_block of {self.name} is not one number: read it from the engine's log")
        entry = {"auto": self.latent * 2, "fp8": self.latent, "fp8_ds_mla": PACKED_ENTRY_BYTES}.get(kv_cache_dtype)
        if entry is None:
            raise ValueError(f"kv_cache_dtype must be auto, fp8 or fp8_ds_mla, got {kv_cache_dtype!r}")
        if self.is_sparse:
            entry += INDEXER_ENTRY_BYTES
        return self.attention_layers * block_size * entry


# Sources: the published config.json of each model; for DeepSeek-V4 also its report (the first two layers keep only the
# window in Flash and are C128A in Pro, then C4A and C128A alternate). Kimi-K3 has 24 full-attention layers among 93.
_SHIPPED: Final = (
    MlaModel(name="deepseek-v3", attention_layers=61, heads=128, max_model_len=163_840),
    MlaModel(name="deepseek-v3.2", attention_layers=61, heads=128, max_model_len=163_840, index_topk=2048),
    MlaModel(
        name="deepseek-v4-flash",
        attention_layers=43,
        heads=64,
        kv_lora_rank=448,
        max_model_len=1_048_576,
        index_topk=512,
        window=128,
        layer_types=((SWA_ONLY, 2), (C4A, 21), (C128A, 20)),
    ),
    MlaModel(
        name="deepseek-v4-pro",
        attention_layers=61,
        heads=128,
        kv_lora_rank=448,
        max_model_len=1_048_576,
        index_topk=1024,
        window=128,
        layer_types=((C4A, 30), (C128A, 31)),
    ),
    MlaModel(name="kimi-k2", attention_layers=61, heads=64, max_model_len=262_144),
    MlaModel(name="kimi-k3", attention_layers=24, heads=96, max_model_len=1_048_576),
    MlaModel(
        name="glm-5",
        attention_layers=78,
        heads=64,
        qk_nope_head_dim=192,
        v_head_dim=256,
        max_model_len=202_752,
        index_topk=2048,
    ),
)

#: The shipped models by name.
MODELS: Final[dict[str, MlaModel]] = {model.name: model for model in _SHIPPED}


def model_named(name: str) -> MlaModel:
    """Look a shipped model up.

    Raises:
        ValueError: if there is none of that name; the message has the nearest.
    """
    model = MODELS.get(name.lower())
    if model is None:
        near = difflib.get_close_matches(name.lower(), MODELS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}{hint}")
    return model
