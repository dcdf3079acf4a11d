"""Copies of the tiny model with one thing wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make_model(whole: Path, kind: str, folder: Path) -> Path:
    """A copy of the model in ``folder``, spoiled as ``kind`` says; ``whole`` is the model itself."""
    if kind == "whole":
        return whole
    copy = folder / kind
    shutil.copytree(whole, copy)
    _SPOIL[kind](copy)
    return copy


def _edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def _remove(pattern: str) -> Callable[[Path], None]:
    def remove(model: Path) -> None:
        for path in model.glob(pattern):
            path.unlink()

    return remove


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        (model / name).write_bytes(content)

    return write


def _cut_weights(model: Path) -> None:
    for path in model.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _hide(model: Path) -> None:
    model.chmod(0o700)
    for path in model.iterdir():
        path.chmod(0o600)


def _drop_shard(model: Path) -> None:
    shard = next(model.glob("*.safetensors"))
    shard.rename(model / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


_SPOIL: dict[str, Callable[[Path], None]] = {
    "no-config": _remove("config.json"),
    "torn-config": _write("config.json", b'{"architectures": ["Deepse'),
    "no-tokenizer": _remove("tokenizer*"),
    "no-weights": _remove("*.safetensors"),
    "cut-weights": _cut_weights,
    "pointer-weights": _write("model.safetensors", b"version https://git-lfs.github.com/spec/v1\nsize 123\n"),
    "missing-shard": _drop_shard,
    "hidden": _hide,
    "new-type": _edit_config(model_type="moonbeam9", architectures=["Moonbeam9ForCausalLM"]),
    "new-architecture": _edit_config(architectures=["DeepseekV9ForCausalLM"]),
    "fp8": _edit_config(
        quantization_config={
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "fmt": "e4m3",
        }
    ),
    "gptq": _edit_config(quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}),
    "sparse": _edit_config(
        model_type="deepseek_v32",
        architectures=["DeepseekV32ForCausalLM"],
        index_topk=64,
        index_n_heads=2,
        index_head_dim=128,
    ),
}
