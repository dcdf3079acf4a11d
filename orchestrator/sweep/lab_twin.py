"""The kernel lab's layers in place of a model's: what planning arithmetic and the lab need to know of a study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.engines.kernel_lab import LabArgs, LabError, lab_args
from orchestrator.engines.planning_cost import KNOWN_KNOBS
from orchestrator.models import TinyMLAConfig
from orchestrator.planning.models import MODELS, MlaModel
from orchestrator.search import Point
from orchestrator.sweep.space_builder import TINY_MODEL
from orchestrator.sweep.spec import EngineSection, SweepSpec

_SHARED = (
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "long_prefill_token_threshold",
    "block_size",
    "decode_context_parallel_size",
    "cp_kv_cache_interleave_size",
)
"""Arguments that mean the same to vLLM and to the lab."""

_NEEDED = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
"""Those whose default vLLM chooses by the machine."""

_SHAPE = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")

_V4_LAYERS = 4
"""Layers that stand for those of DeepSeek-V4: enough for the proportion of their kinds."""


class NoTwinError(Exception):
    """Why a study has no twin, in a few words."""


def twin_args(spec: SweepSpec, group: Point) -> LabArgs:
    """The lab's arguments for the engine of a group: the study's own where it is one of the lab, else layers of the
    model's shape.

    Raises:
        NoTwinError: The model's shape, a size or the effect of a knob is not known.
    """
    if unknown := sorted(name for name in spec.space if name not in KNOWN_KNOBS):
        raise NoTwinError(f"it says nothing about {unknown[0]}")
    values = {name: value for name, value in group.items() if value is not None}
    own = dict(spec.engine.args) if spec.is_lab else _of_model(spec, values)
    try:
        return lab_args({**own, **values})
    except LabError as error:
        raise NoTwinError(error.detail) from error


def twin_spec(spec: SweepSpec) -> SweepSpec:
    """The study on the kernel lab, with layers of the model's shape.

    Raises:
        NoTwinError: As ``twin_args``, or the study is one of the lab already.
    """
    if spec.is_lab:
        raise NoTwinError("the study's own engine is the kernel lab")
    args = twin_args(spec, {}).model_dump(exclude_defaults=True)
    args["device"] = "cuda" if spec.resources.gpus > 0 else "cpu"
    plugin = spec.engine.plugin.model_copy(update={"cpu_chunked_prefill": False, "planner": "vllm"})
    engine = EngineSection(kind="kernel_lab", args=args, env=spec.engine.env, plugin=plugin)
    return spec.model_copy(update={"engine": engine})


def _of_model(spec: SweepSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    args = {**spec.engine.args, **values}
    if "decode_context_parallel_size" in spec.space:
        raise NoTwinError("decode_context_parallel_size changes the heads of a rank")
    given = {name: args[name] for name in _SHARED if args.get(name) is not None}
    for name in _NEEDED:
        if name not in given:
            raise NoTwinError(f"engine.args.{name} is not given")
    shape = _shape(spec)
    # Ranks that share a context are some of the tensor parallel ones.
    ranks = args.get("decode_context_parallel_size") or 1
    shape["heads"] = max(shape["heads"] * ranks // (args.get("tensor_parallel_size") or 1), ranks)
    return {**shape, **given}


def _shape(spec: SweepSpec) -> dict[str, Any]:
    """Layers and their sizes, heads over all ranks."""
    if spec.model == TINY_MODEL:
        tiny = TinyMLAConfig(**spec.tiny_model)
        return {"layers": {"dense": 1}, "heads": tiny.heads, **{name: getattr(tiny, name) for name in _SHAPE}}
    config = Path(spec.model) / "config.json"
    if config.is_file():
        return _shape_of_config(json.loads(config.read_text(encoding="utf-8")))
    model = MODELS.get(spec.model.rpartition("/")[2].lower())
    if model is None:
        raise NoTwinError(f"the shape of {spec.model} is not known")
    return _shape_of_model(model)


def _shape_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in (*_SHAPE, "num_attention_heads") if not isinstance(config.get(name), int)]
    if missing:
        raise NoTwinError(f"the model's config.json has no {missing[0]}")
    shape: dict[str, Any] = {name: config[name] for name in _SHAPE} | {"heads": config["num_attention_heads"]}
    if isinstance(topk := config.get("index_topk"), int):
        return {**shape, "layers": {"sparse": 1}, "index_topk": topk}
    return {**shape, "layers": {"dense": 1}}


def _shape_of_model(model: MlaModel) -> dict[str, Any]:
    if not model.is_v4:
        return _shape_of_config(
            {name: getattr(model, name) for name in (*_SHAPE, "index_topk")} | {"num_attention_heads": model.heads}
        )
    count = sum(layers for _, layers in model.layer_types)
    layers = {kind.name: max(1, round(_V4_LAYERS * part / count)) for kind, part in model.layer_types}
    return {
        "layers": layers,
        "heads": model.heads,
        "head_dim": model.latent,
        "window": model.window,
        "index_topk": model.index_topk,
    }
