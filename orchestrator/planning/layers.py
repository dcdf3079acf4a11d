"""The kinds of attention layer that plan their own prefill chunks."""

from __future__ import annotations

from typing import Final, NamedTuple


class LayerType(NamedTuple):
    """A kind of DeepSeek-V4 attention layer, as the chunk planner sees it.

    Attributes:
        name: vLLM's name of the kind.
        compress_ratio: Tokens per compressed cache row.
        has_compressed: Whether the layer gathers compressed rows at all, beside those of its sliding window.
    """

    name: str
    compress_ratio: int
    has_compressed: bool


SWA_ONLY: Final = LayerType("swaonly", 1, False)
C1A: Final = LayerType("c1a", 1, True)
C2A: Final = LayerType("c2a", 2, True)
C4A: Final = LayerType("c4a", 4, True)
C128A: Final = LayerType("c128a", 128, True)

#: By name. ``c1a`` and ``c2a`` came with DeepSeek-V4.1 (vLLM 0.30).
LAYER_TYPES: Final[dict[str, LayerType]] = {kind.name: kind for kind in (SWA_ONLY, C1A, C2A, C4A, C128A)}


def gathers_compressed(compress_ratio: int, has_compressed: bool | None) -> bool:
    """Whether a layer gathers compressed rows; ``None`` keeps vLLM's older meaning, a ratio above 1."""
    return compress_ratio > 1 if has_compressed is None else has_compressed
