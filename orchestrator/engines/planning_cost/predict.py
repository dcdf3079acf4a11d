"""A block as planning arithmetic sees it, at one point of the kernel lab's knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.engines.contract import KnobValue, RequestTimeline
from orchestrator.engines.kernel_lab import LAB_LIVE_KNOBS, LabArgs
from orchestrator.engines.kernel_lab.args import DENSE
from orchestrator.engines.live import LIVE_KNOBS
from orchestrator.engines.planning_cost.roofs import NOMINAL, Roofs
from orchestrator.engines.planning_cost.timeline import StepLimits, play
from orchestrator.engines.planning_cost.work import ELEMENT_BYTES, Work, mla_work, v4_work
from orchestrator.planning import (
    PREFILL_CHUNK_SIZE,
    ChunkPlan,
    LayerType,
    Share,
    area_limit,
    dense_workspace_rows,
    fixed_chunks,
    plan_prefill_chunks,
    rule_for_vllm,
    sparse_workspace_rows,
)
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule

LIVE_PLANNED: Final = frozenset({*LIVE_KNOBS, *LAB_LIVE_KNOBS})

KNOWN_KNOBS: Final = LIVE_PLANNED | {"block_size", "cp_kv_cache_interleave_size", "decode_context_parallel_size"}
"""Knobs that a prediction depends on. It says nothing about others, and must not be asked to rank them."""

_ALL_ROWS: Final = 128
"""Layers of this compression ratio or more attend to every compressed row."""


@dataclass(frozen=True, kw_only=True)
class PlannedBlock:
    """What a block would do and take.

    Attributes:
        requests: Timelines in virtual time.
        duration_s: Until the last request ends.
        steps: Of the scheduler.
        work: Over all steps and layers, on one rank.
        workspace_bytes: Of the buffers that the point reserves.
    """

    requests: Sequence[RequestTimeline]
    duration_s: float
    steps: int
    work: Work
    workspace_bytes: int


class PlanningCost:
    """Predicts blocks of one engine at one point.

    It knows attention alone, as the kernel lab does: what the rest of a model takes is the same for all points, but for
    the number of steps. Copies and products are taken not to overlap, and caches of the processor are not modelled, so
    a small chunk that stays in one is not seen to be fast. That is why it ranks and never decides.

    Args:
        args: The engine as it starts, engine-scope values put in.
        plugin: Settings at engine start.
        live: Live values; None or nothing for the value at start.
        roofs: Of the device.

    Raises:
        ValueError: A live value is of a knob that it does not know, or out of range.
    """

    def __init__(
        self,
        args: LabArgs,
        *,
        plugin: PluginSettings | None = None,
        live: Mapping[str, KnobValue] | None = None,
        roofs: Roofs = NOMINAL,
    ) -> None:
        given = {name: value for name, value in (live or {}).items() if value is not None}
        if unknown := sorted(given.keys() - LIVE_PLANNED):
            raise ValueError(f"{unknown[0]} is no live knob of the kernel lab")
        settings = plugin or PluginSettings()

        def value(name: str, start: int | None) -> int | None:
            found = given.get(name, start)
            if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
                raise ValueError(f"{name} must be a whole number, got {found!r}")
            return found

        self._args, self._roofs = args, roofs
        self._order = str(given.get("chunk_order", args.chunk_order))
        self._chunk_size = value("prefill_chunk_size", settings.prefill_chunk_size) or PREFILL_CHUNK_SIZE
        self._start_chunk_size = settings.prefill_chunk_size or PREFILL_CHUNK_SIZE
        self._area_limit = value("prefill_area_limit", settings.prefill_area_limit)
        self.limits = StepLimits(
            max_num_batched_tokens=value("max_num_batched_tokens", args.max_num_batched_tokens) or 1,
            max_num_seqs=value("max_num_seqs", args.max_num_seqs) or 1,
            long_prefill_token_threshold=value("long_prefill_token_threshold", args.long_prefill_token_threshold) or 0,
        )
        self._rule = rule_for_vllm(args.vllm)
        self.workspace_rows = self._rows(value("mla_workspace_rows", settings.mla_workspace_rows))

    def predict(self, requests: Sequence[Request], schedule: Schedule) -> PlannedBlock:
        """The block that serves these requests."""
        total, steps = Work(), 0

        def seconds_of(step: list[Share]) -> float:
            nonlocal total, steps
            work = self._step(step)
            total, steps = total + work, steps + 1
            return self._roofs.seconds(work)

        timelines = play(requests, schedule, self.limits, seconds_of)
        return PlannedBlock(
            requests=timelines,
            duration_s=max(one.end_s or 0.0 for one in timelines),
            steps=steps,
            work=total,
            workspace_bytes=self.workspace_bytes,
        )

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the context workspace and of the gather workspace of DeepSeek-V4 layers."""
        args, ranks = self._args, self._args.decode_context_parallel_size
        rows = self.workspace_rows + (self.workspace_rows // ranks if ranks > 1 else 0)
        latent = args.kv_lora_rank + args.qk_rope_head_dim
        area = max((self._reserved(kind) for kind in args.v4_kinds), default=0)
        return (rows * latent + area * args.head_dim) * ELEMENT_BYTES

    def _step(self, step: Sequence[Share]) -> Work:
        """What all layers do in a step."""
        args = self._args
        # As in vLLM, one new token is a decode, be it the last of a prompt.
        prefills = [one for one in step if one.tokens > 1]
        decodes = [one for one in step if one.tokens == 1]
        total = Work()
        if args.mla_kind is not None:
            topk = None if args.mla_kind == DENSE else args.index_topk
            one = mla_work(args, prefills, decodes, workspace_rows=self.workspace_rows, rule=self._rule, topk=topk)
            total += one.times(args.mla_layers)
        for kind in args.v4_kinds:
            topk = self._topk(kind)
            one = v4_work(args, kind, prefills, decodes, plan=self._plan(kind, prefills), topk=topk)
            total += one.times(args.layers[kind.name])
        return total

    def _plan(self, kind: LayerType, prefills: Sequence[Share]) -> ChunkPlan:
        args = self._args
        if self._order == "fixed":
            return fixed_chunks(
                len(prefills),
                compress_ratio=kind.compress_ratio,
                max_model_len=args.max_model_len,
                window=args.window,
                max_num_batched_tokens=args.max_num_batched_tokens,
                has_compressed=kind.has_compressed,
                prefill_chunk_size=self._chunk_size,
            )
        if not prefills:
            return ChunkPlan.of((), 1)
        own = self._limit(kind, self._chunk_size)
        return plan_prefill_chunks(
            [one.context + one.tokens for one in prefills],
            [one.tokens for one in prefills],
            compress_ratio=kind.compress_ratio,
            window=args.window,
            area_limit=own if self._area_limit is None else min(own, self._area_limit),
            has_compressed=kind.has_compressed,
            order=self._order,
            launch_rows=args.launch_rows,
        )

    def _limit(self, kind: LayerType, chunk_size: int) -> int:
        args = self._args
        return area_limit(
            prefill_chunk_size=chunk_size,
            compress_ratio=kind.compress_ratio,
            max_model_len=args.max_model_len,
            window=args.window,
            max_num_batched_tokens=args.max_num_batched_tokens,
            has_compressed=kind.has_compressed,
        )

    def _reserved(self, kind: LayerType) -> int:
        """Rows that the engine sets aside for a chunk: those of its start, which no live value changes."""
        return self._limit(kind, self._start_chunk_size)

    def _topk(self, kind: LayerType) -> int:
        if not kind.has_compressed:
            return 0
        if kind.compress_ratio >= _ALL_ROWS:
            return -(-self._args.max_model_len // kind.compress_ratio)
        return self._args.index_topk

    def _rows(self, cap: int | None) -> int:
        """Rows of the context workspace; 0 without dense or sparse layers."""
        args = self._args
        if args.mla_kind is None:
            return 0
        sizes = {
            "max_model_len": args.max_model_len,
            "max_num_seqs": self.limits.max_num_seqs,
            "block_size": args.tokens_per_block,
            "dcp": args.decode_context_parallel_size,
            "interleave": args.cp_kv_cache_interleave_size,
        }
        if args.mla_kind == DENSE:
            return dense_workspace_rows(**sizes, cap=cap, rule=self._rule)
        return sparse_workspace_rows(**sizes, index_topk=args.index_topk, cap=cap, rule=self._rule)
