"""A small DeepSeek-V3-style MLA model, written to disk from a seed.

The weights are real random numbers, not vLLM's ``load_format=dummy``: dummy weights are so small
that every token is equally likely, and then equal tokens prove nothing about a configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
"""Raised whenever the same ``TinyMLAConfig`` would give other bytes, so that no stale folder is used."""

_SPECIAL_TOKENS = ("<unk>", "<s>", "</s>", "<pad>")


@dataclass(frozen=True, kw_only=True)
class TinyMLAConfig:
    """Size of the model. The latent width (512 + 64) is DeepSeek's own, so workspace rows cost what they cost there.

    Attributes:
        seed: Seed of the weights; the same seed and sizes give the same bytes.
        layers: Number of decoder layers, at least 1. Every layer is dense (no experts).
        hidden_size: Width of the residual stream.
        heads: Attention heads.
        kv_lora_rank: Width of the latent that the cache holds, without the rotary part.
        qk_rope_head_dim: Width of the rotary part of a cached row.
        vocab_size: At least 10,000, because ``vllm bench`` draws token ids up to 10,000.
        max_position_embeddings: Longest context that the model accepts, in tokens.
    """

    seed: int = 0
    layers: int = 2
    hidden_size: int = 256
    intermediate_size: int = 512
    heads: int = 2
    q_lora_rank: int = 128
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    vocab_size: int = 10_240
    max_position_embeddings: int = 131_072

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "seed" and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if self.vocab_size < 10_000:
            raise ValueError(f"vocab_size must be at least 10000, got {self.vocab_size}")


def tiny_model(config: TinyMLAConfig | None = None, *, cache_dir: Path | None = None) -> Path:
    """Return the folder of the model, writing it first if the cache does not hold it.

    The folder appears whole or not at all: it is written beside its place and renamed.

    Args:
        config: Size and seed; the two-layer default if omitted.
        cache_dir: Parent folder; ``$CHUNKSMITH_CACHE``, else ``$XDG_CACHE_HOME/chunksmith``, else
            ``~/.cache/chunksmith``.

    Raises:
        OSError: if the folder cannot be written; ``filename`` names the file.
    """
    config = config or TinyMLAConfig()
    target = tiny_model_path(config, cache_dir=cache_dir)
    parent = target.parent
    if (target / "config.json").exists():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".tiny-mla-", dir=parent))
    try:
        _write_model(config, staging)
        staging.chmod(0o755)
        if target.exists() and not (target / "config.json").exists():
            shutil.rmtree(target)  # Somebody removed files from it: it came whole.
        try:
            staging.rename(target)
        except OSError:
            if not (target / "config.json").exists():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def tiny_model_path(config: TinyMLAConfig | None = None, *, cache_dir: Path | None = None) -> Path:
    """Where ``tiny_model`` puts the model, whether it is there or not. Arguments as for ``tiny_model``."""
    return (cache_dir or default_cache_dir()) / "models" / f"tiny-mla-{_fingerprint(config or TinyMLAConfig())}"


def default_cache_dir() -> Path:
    """Folder for what can be made again: ``$CHUNKSMITH_CACHE`` or the user's cache folder."""
    if own := os.environ.get("CHUNKSMITH_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "chunksmith"


def _fingerprint(config: TinyMLAConfig) -> str:
    text = json.dumps({"format": FORMAT_VERSION, **asdict(config)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _write_model(config: TinyMLAConfig, folder: Path) -> None:
    from safetensors.torch import save

    _write(folder / "model.safetensors", save(_weights(config), metadata={"format": "pt"}))
    _write_json(folder / "tokenizer.json", _tokenizer(config.vocab_size))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(config))
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})
    _write_json(folder / "config.json", _hf_config(config))


def _write_json(path: Path, content: Any) -> None:
    _write(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        # A failed write, unlike a failed open, does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _hf_config(config: TinyMLAConfig) -> dict[str, Any]:
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
        # Every layer is dense, but transformers wants whole numbers for the experts all the same.
        "first_k_dense_replace": config.layers,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "moe_layer_freq": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "kv_lora_rank": config.kv_lora_rank,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.heads,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": config.q_lora_rank,
        "qk_nope_head_dim": config.qk_nope_head_dim,
        "qk_rope_head_dim": config.qk_rope_head_dim,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "v_head_dim": config.v_head_dim,
        "vocab_size": config.vocab_size,
    }


def _weights(config: TinyMLAConfig) -> dict[str, Any]:
    """Tensors in bfloat16. Matrices are scaled by fan-in, so that activations keep their size over depth."""
    import numpy as np
    import torch

    rng = np.random.Generator(np.random.PCG64(config.seed))

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Any:
        values = rng.standard_normal((rows, columns), dtype=np.float32) * (scale / np.sqrt(columns))
        return torch.from_numpy(values).to(torch.bfloat16)

    def ones(width: int) -> Any:
        return torch.ones(width, dtype=torch.bfloat16)

    hidden, heads = config.hidden_size, config.heads
    qk_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
    tensors: dict[str, Any] = {"model.embed_tokens.weight": matrix(config.vocab_size, hidden, np.sqrt(hidden))}
    for layer in range(config.layers):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        tensors |= {
            f"model.layers.{layer}.input_layernorm.weight": ones(hidden),
            f"model.layers.{layer}.post_attention_layernorm.weight": ones(hidden),
            f"{attention}.q_a_proj.weight": matrix(config.q_lora_rank, hidden),
            f"{attention}.q_a_layernorm.weight": ones(config.q_lora_rank),
            f"{attention}.q_b_proj.weight": matrix(heads * qk_dim, config.q_lora_rank),
            f"{attention}.kv_a_proj_with_mqa.weight": matrix(config.kv_lora_rank + config.qk_rope_head_dim, hidden),
            f"{attention}.kv_a_layernorm.weight": ones(config.kv_lora_rank),
            f"{attention}.kv_b_proj.weight": matrix(
                heads * (config.qk_nope_head_dim + config.v_head_dim), config.kv_lora_rank
            ),
            f"{attention}.o_proj.weight": matrix(hidden, heads * config.v_head_dim),
            f"{mlp}.gate_proj.weight": matrix(config.intermediate_size, hidden),
            f"{mlp}.up_proj.weight": matrix(config.intermediate_size, hidden),
            f"{mlp}.down_proj.weight": matrix(hidden, config.intermediate_size),
        }
    tensors["model.norm.weight"] = ones(hidden)
    tensors["lm_head.weight"] = matrix(config.vocab_size, hidden, 2.0)
    return tensors


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    """A word-level tokenizer in the format of the ``tokenizers`` library: token ``w17`` has id 17."""
    vocab = {token: index for index, token in enumerate(_SPECIAL_TOKENS)}
    vocab |= {f"w{index}": index for index in range(len(_SPECIAL_TOKENS), vocab_size)}
    special = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, token in enumerate(_SPECIAL_TOKENS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    }


def _tokenizer_config(config: TinyMLAConfig) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": config.max_position_embeddings,
    }
