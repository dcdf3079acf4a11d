"""What ``chunksmith init`` knows of each architecture: its usual weights, and the knobs that are worth a search.

The knobs and their reasons are those of the shipped specs in ``search_spaces``, less what depends on one kind of GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TINY: Final = "tiny-mla"

_FP8 = "kv_cache_dtype: {scope: engine, values: [auto, fp8]}"
_PACKED = """\
# fp8_ds_mla packs 656 bytes a token and is expanded for prefill.
kv_cache_dtype: {scope: engine, values: [auto, fp8_ds_mla]}"""
_SPARSE = """\
# Most MiB of the indexer's logits: below it, a step's queries are scored in several passes. 512 is vLLM's default.
VLLM_SPARSE_INDEXER_MAX_LOGITS_MB: {scope: engine, low: 128, high: 1024, log2: true}
# The indexer's K buffer, in multiples of max_model_len; null is 5 up to 256 Ki tokens and 2 beyond.
attention_config.sparse_mla_prefill_workspace_factor: {scope: engine, values: [null, 2, 3]}"""
_TOPICS = ("vllm-dcp", "mla-backend", "vllm-scheduler", "vllm-engine")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A kind of model.

    Attributes:
        shape: Its name in ``planning.models``, which constraints reckon with; None for the tiny model.
        weights: Usual name on the hub.
        block_size: Tokens of a KV cache block that its backends take.
        cache: Argument for the KV cache's type where there is no choice.
        knobs: Lines under ``space``, beside those that all have.
        topics: vLLM's constraints that apply.
        has_dcp: Whether vLLM 0.32 runs it with decode context parallelism.
        has_rows: Whether its prefill goes through the MLA workspace, whose rows ``mla_workspace_rows`` caps.
    """

    shape: str | None
    weights: str
    block_size: int = 64
    cache: str | None = None
    knobs: tuple[str, ...] = (_FP8,)
    topics: tuple[str, ...] = _TOPICS
    has_dcp: bool = True
    has_rows: bool = True


def _v4(size: str) -> Architecture:
    return Architecture(
        shape=f"deepseek-v4-{size}",
        weights=f"deepseek-ai/DeepSeek-V4-{size.capitalize()}",
        block_size=256,
        cache="fp8",
        knobs=(_SPARSE,),
        topics=("vllm-dcp", "vllm-scheduler", "vllm-engine"),
        has_dcp=False,
        has_rows=False,
    )


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "deepseek-v3": Architecture(shape="deepseek-v3", weights="deepseek-ai/DeepSeek-V3"),
    "deepseek-v3.2": Architecture(shape="deepseek-v3.2", weights="deepseek-ai/DeepSeek-V3.2", knobs=(_PACKED, _SPARSE)),
    "deepseek-v4": _v4("flash"),
    "deepseek-v4-flash": _v4("flash"),
    "deepseek-v4-pro": _v4("pro"),
    "kimi-k2": Architecture(shape="kimi-k2", weights="moonshotai/Kimi-K2-Instruct"),
    # The state of the linear-attention layers inflates the block to this size.
    "kimi-k3": Architecture(shape="kimi-k3", weights="moonshotai/Kimi-K3", block_size=768),
    "glm-5": Architecture(shape="glm-5", weights="zai-org/GLM-5-FP8", cache="fp8", knobs=(_SPARSE,)),
    TINY: Architecture(shape=None, weights=TINY, knobs=(), topics=(), has_dcp=False),
}
"""By the name that ``chunksmith init`` takes."""

_BY_CONFIG: Final = {
    "deepseek_v3": "deepseek-v3",
    "deepseek_v32": "deepseek-v3.2",
    "deepseek_v4": "deepseek-v4",
    "kimi_k2": "kimi-k2",
    "kimi_k3": "kimi-k3",
    "glm_moe_dsa": "glm-5",
}
"""By ``model_type`` of a model's config.json."""

_BY_NAME: Final[Sequence[tuple[str, str]]] = (
    (r"deepseek-v3[.-]2", "deepseek-v3.2"),
    (r"deepseek-v4-pro", "deepseek-v4-pro"),
    (r"deepseek-v4", "deepseek-v4"),
    (r"deepseek-(v3|r1)", "deepseek-v3"),
    (r"kimi-k3", "kimi-k3"),
    (r"kimi-k2", "kimi-k2"),
    (r"glm-5", "glm-5"),
)
"""By what the name of a folder or a repository holds, the narrower ones first."""


def architecture_of(model: str) -> str | None:
    """The architecture of a model: one of the names here, a folder by its config.json, else by the name alone.

    Returns:
        A key of ``ARCHITECTURES``, or None where nothing tells it.
    """
    if model.lower() in ARCHITECTURES:
        return model.lower()
    config = Path(model).expanduser() / "config.json"
    if config.is_file():
        try:
            kind = json.loads(config.read_text(encoding="utf-8")).get("model_type")
        except (OSError, ValueError, AttributeError):
            kind = None
        # Kimi-K2 calls itself a DeepSeek-V3, which is what it is built as; its name then says more.
        if kind in _BY_CONFIG and kind != "deepseek_v3":
            return _BY_CONFIG[kind]
        return _by_name(Path(model).name) or _BY_CONFIG.get(kind or "")
    return _by_name(model)


def _by_name(name: str) -> str | None:
    plain = name.lower().replace("_", "-")
    return next((found for pattern, found in _BY_NAME if re.search(pattern, plain)), None)
