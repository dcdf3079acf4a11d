"""What the planner makes of one step of a trial's block, as a picture beside the baseline's plan of the same step.

Everything comes from the records: lengths from the requests of the trial's last counted block, limits from the point
that was measured and from what its engine had in force when it started. The plan itself is computed anew by
arithmetic, which equals vLLM's own (``orchestrator.planning``); no engine drew it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.run_spec import RunSpec
from orchestrator.errors import ChunksmithError
from orchestrator.planning import (
    LAUNCH_ROWS,
    LAYER_TYPES,
    PREFILL_CHUNK_SIZE,
    ChunkPlan,
    ContextPlan,
    LayerType,
    Share,
    area_limit,
    context_svg,
    fcfs_steps,
    fixed_chunks,
    plan_context_chunks,
    plan_prefill_chunks,
    plans_svg,
    request_extents,
    rule_for_vllm,
)
from orchestrator.planning.models import MODELS, MlaModel
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_object, read_table

PLANNER_KNOBS: Final = frozenset({"chunk_order", "mla_workspace_rows", "prefill_area_limit", "prefill_chunk_size"})
"""Knobs that decide how a step is cut into chunks, whatever else they change."""

_MOST_REQUESTS: Final = 64
"""Of a block are looked at; decoding is left out."""

_LIMITS: Final = ("max_num_batched_tokens", "max_num_seqs")
"""What steps cannot be formed without."""

_CAPTIONS: Final = {"candidate": "At the point", "baseline": "At the baseline"}


def has_plan(spec: RunSpec, provenance: Mapping[str, Any], row: Mapping[Any, Any]) -> bool:
    """Whether :func:`plan_picture` can draw a trial: its space has a knob of the planner, pairs of it were measured
    in this run, and the limits and the layers of its engine are known.

    Args:
        row: Of the trials table, with None for what is missing.
    """
    if not PLANNER_KNOBS & set(spec.knobs) or not row["pairs"] or row["reused_from"] is not None:
        return False
    engine = _engines(provenance).get(row["engine_id"])
    if engine is None or any(engine["in_force"].get(name) is None for name in _LIMITS):
        return False
    return row["workspace_rows"] is not None or bool(_v4_layers(engine))


def plan_picture(run: RunFolder, provenance: Mapping[str, Any], trial: int) -> str:
    """The picture of a trial for which :func:`has_plan` is true, as an SVG document.

    Raises:
        ChunksmithError: The records cannot be read, or do not belong together.
    """
    planned = {role: _Planned.read(run, provenance, trial, role) for role in ("candidate", "baseline")}
    at_point = planned["candidate"]
    number, shares = at_point.busiest_step()
    heading = [
        f"Trial {trial}, planned anew by arithmetic: step {number + 1} of its block, the one of the most chunks.",
        f"It prefills {_requests(len(shares))} of {len(at_point.prompts)}. Below: the plan at the point, and the "
        "baseline's of the same step.",
    ]
    if at_point.workspace_rows is not None:
        contexts = [one.context for one in shares]
        plans = {f"{_CAPTIONS[role]}{one.workspace}": one.context_plan(contexts) for role, one in planned.items()}
        return context_svg(plans, contexts, [one.tokens for one in shares], heading=heading)
    kind = max(at_point.layers, key=lambda layer: (len(at_point.area_plan(layer, shares)), layer.has_compressed))
    deep, wide = request_extents(
        *_lengths(shares),
        compress_ratio=kind.compress_ratio,
        window=at_point.window,
        has_compressed=kind.has_compressed,
    )
    area_plans = {f"{_CAPTIONS[role]}, {kind.name}": one.area_plan(kind, shares) for role, one in planned.items()}
    return plans_svg(area_plans, deep.tolist(), wide.tolist(), heading=heading)


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """What one role's planner goes by.

    Attributes:
        engine: The engine's entry of the provenance.
        point: As measured; None for a knob that keeps its value at engine start.
        prompts: Tokens of each prompt of the block.
        seats: Requests that ran at a time, at most.
        workspace_rows: In force in the block; None for layers without a context workspace.
    """

    engine: Mapping[str, Any]
    point: Mapping[str, Any]
    prompts: Sequence[int]
    seats: int
    workspace_rows: int | None

    @classmethod
    def read(cls, run: RunFolder, provenance: Mapping[str, Any], trial: int, role: str) -> _Planned:
        """Of the role's last counted block."""
        of_trial = (pc.field("trial") == trial) & (pc.field("phase") == "search") & (pc.field("role") == role)
        blocks = read_table(run.path, "blocks", where=FULL_FIDELITY & of_trial & ~pc.field("dropped"))
        if blocks.empty:
            raise ChunksmithError(f"{run.path}: blocks/ holds no counted {role} block of trial {trial}")
        block = blocks.astype(object).where(blocks.notna(), None).sort_values("block").iloc[-1]
        of_block = of_trial & (pc.field("block") == int(block["block"]))
        if block["engine_id"] not in _engines(provenance):
            raise ChunksmithError(f"{run.provenance}: says nothing of {block['engine_id']}, which ran trial {trial}")
        requests = read_table(run.path, "requests", where=of_block, columns=["request", "prompt_tokens"])
        prompts = requests.sort_values("request")["prompt_tokens"].tolist()
        return cls(
            engine=_engines(provenance)[block["engine_id"]],
            point=parse_object(block["point"], where=f"{run.path}: trial {trial}: blocks: point"),
            prompts=prompts[:_MOST_REQUESTS],
            seats=max(1, block["max_running_requests"]),
            workspace_rows=None if block["workspace_rows"] is None else int(block["workspace_rows"]),
        )

    def value(self, knob: str) -> Any:
        """In force in the block."""
        found = self.point.get(knob)
        return self.engine["in_force"].get(knob) if found is None else found

    @property
    def layers(self) -> list[LayerType]:
        """Of DeepSeek-V4."""
        return _v4_layers(self.engine)

    @property
    def window(self) -> int:
        """Tokens of the sliding window of DeepSeek-V4 layers."""
        lab, model = _lab(self.engine), _v4_model(self.engine)
        return int(lab["window"]) if lab else model.window if model else 0

    @property
    def workspace(self) -> str:
        """In words."""
        return f" (workspace of {self.workspace_rows:,} rows)"

    def busiest_step(self) -> tuple[int, list[Share]]:
        """Number and prefills of the step with the most chunks; among equals the one with the most context, or, where
        chunks are made by area, the most requests."""
        steps = fcfs_steps(
            [(prompt, 1) for prompt in self.prompts],
            max_num_batched_tokens=self.value("max_num_batched_tokens"),
            max_num_seqs=min(self.value("max_num_seqs"), self.seats),
            long_prefill_token_threshold=self.value("long_prefill_token_threshold") or 0,
        )
        # As in vLLM, one new token is a decode, unless there is nothing else to show.
        prefills = [(number, [one for one in step if one.tokens > 1] or step) for number, step in enumerate(steps)]

        def weight(step: tuple[int, list[Share]]) -> tuple[int, int, int]:
            shares = step[1]
            tokens = sum(one.tokens for one in shares)
            if self.workspace_rows is None:
                return max(len(self.area_plan(kind, shares)) for kind in self.layers), len(shares), tokens
            contexts = [one.context for one in shares]
            return len(self.context_plan(contexts)), sum(contexts), tokens

        return max(prefills, key=weight)

    def context_plan(self, contexts: Sequence[int]) -> ContextPlan:
        """Context chunks of dense or sparse layers."""
        engine = self.engine
        assert self.workspace_rows is not None
        return plan_context_chunks(
            contexts,
            workspace_rows=self.workspace_rows,
            block_size=engine["block_size"],
            dcp=engine["dcp"],
            interleave=engine["interleave"],
            rule=rule_for_vllm(engine["version"]),
            # Sparse backends begin pieces anywhere, except on CUDA.
            align_to_block=engine["index_topk"] is None or bool(engine["node"].get("gpus")),
        )

    def area_plan(self, kind: LayerType, shares: Sequence[Share]) -> ChunkPlan:
        """Chunks of a DeepSeek-V4 layer."""
        layer: dict[str, Any] = {
            "compress_ratio": kind.compress_ratio,
            "window": self.window,
            "has_compressed": kind.has_compressed,
        }
        sizes = {
            "max_model_len": self.engine["max_model_len"],
            "max_num_batched_tokens": self.value("max_num_batched_tokens"),
            "prefill_chunk_size": self.value("prefill_chunk_size") or PREFILL_CHUNK_SIZE,
        }
        order = self.value("chunk_order") or "batch"
        if order == "fixed":
            return fixed_chunks(len(shares), **sizes, **layer)
        own, cap = area_limit(**sizes, **layer), self.value("prefill_area_limit")
        limit = own if cap is None else min(own, cap)
        launch_rows = _lab(self.engine).get("launch_rows", LAUNCH_ROWS)
        return plan_prefill_chunks(*_lengths(shares), area_limit=limit, order=order, launch_rows=launch_rows, **layer)


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number} requests"


def _lengths(shares: Sequence[Share]) -> tuple[list[int], list[int]]:
    """Tokens of each request with its context, and in this step."""
    return [one.context + one.tokens for one in shares], [one.tokens for one in shares]


def _engines(provenance: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What the provenance says of each engine, by its id."""
    return {engine["engine_id"]: engine for engine in provenance.get("engines", [])}


def _v4_layers(engine: Mapping[str, Any]) -> list[LayerType]:
    """Layers that plan chunks by area: the kernel lab says which it has; those of a known model are written down."""
    if lab := _lab(engine):
        return [LAYER_TYPES[name] for name in lab["layers"] if name in LAYER_TYPES]
    model = _v4_model(engine)
    return [kind for kind, _ in model.layer_types] if model else []


def _lab(engine: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of the kernel lab; empty for another engine."""
    return (engine.get("resolved") or {}).get("lab_config") or {}


def _v4_model(engine: Mapping[str, Any]) -> MlaModel | None:
    config = (engine.get("resolved") or {}).get("model_config") or {}
    model = MODELS.get(str(config.get("model", "")).rpartition("/")[2].lower())
    return model if model is not None and model.is_v4 else None
