"""The chunk planner in the place of vLLM's: one plan per engine step and layer type, not one per layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orchestrator.planning.chunks import PREFILL_CHUNK_SIZE, plan_prefill_tuples
from orchestrator.planning.layers import gathers_compressed

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.planning._greedy import Ints, Quad

_INT32 = np.dtype(np.int32)


class StepPlanner(Protocol):
    """What vLLM's forward passes call: ``get_prefill_chunk_plan`` of the step's metadata."""

    def __call__(self, compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None = None) -> list[Quad]:
        """Return ``(start, end, compressed, width)`` of each chunk. All layers of a type share the list."""
        ...


def step_planner(
    seq_lens: Ints,
    query_lens: Ints,
    *,
    window: int,
    max_model_len: int,
    max_num_batched_tokens: int,
    area_cap: int | None = None,
    on_plan: Callable[[list[Quad]], None] | None = None,
) -> StepPlanner:
    """Make the planner of one engine step. It plans on the first call for a layer type and remembers the plan.

    Args:
        seq_lens: Tokens of each prefill request with its context; contiguous ``int32`` or ``int64``, ``[requests]``.
        query_lens: Tokens of each in this step, the same kind of array. Neither may change during the step.
        window: Tokens of the sliding window.
        max_model_len: Tokens.
        max_num_batched_tokens: Tokens.
        area_cap: Rows that no chunk of several requests may exceed, below vLLM's own limit. ``None`` leaves that alone,
            and the plans equal vLLM's.
        on_plan: Called with each plan when it is computed, for instance to count chunks.
    """
    usual: dict[int, list[Quad]] = {}
    others: dict[tuple[int, int, bool | None], list[Quad]] = {}

    def get_prefill_chunk_plan(
        compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None = None
    ) -> list[Quad]:
        # Called once per layer, where building a key of three would cost more than everything else here.
        if has_compressed is None and prefill_chunk_size == PREFILL_CHUNK_SIZE:
            if compress_ratio not in usual:
                usual[compress_ratio] = plan(compress_ratio, prefill_chunk_size, None)
            return usual[compress_ratio]
        key = (compress_ratio, prefill_chunk_size, has_compressed)
        if key not in others:
            others[key] = plan(*key)
        return others[key]

    def plan(compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None) -> list[Quad]:
        compressed = gathers_compressed(compress_ratio, has_compressed)
        # As `area_limit`, without its checks: these numbers come from vLLM's own configuration.
        pool = -(-max_model_len // compress_ratio) if compressed else 0
        limit = prefill_chunk_size * (pool + window + max_num_batched_tokens)
        if area_cap is not None:
            limit = min(limit, area_cap)
        planned = plan_prefill_tuples(seq_lens, query_lens, compress_ratio, compressed, window, limit)
        if on_plan is not None:
            on_plan(planned)
        return planned

    return get_prefill_chunk_plan


def planner_of(
    metadata: Any, *, area_cap: int | None = None, on_plan: Callable[[list[Quad]], None] | None = None
) -> StepPlanner:
    """Make the planner of the step that vLLM's ``DeepseekSparseSWAMetadata`` describes.

    Setting it as ``metadata.get_prefill_chunk_plan`` makes every later layer of the step find its plan. Source of the
    fields: vLLM 0.24 and later.

    Args:
        metadata: vLLM's metadata of a step with prefills; its lengths are CPU tensors.
        area_cap: As for :func:`step_planner`.
        on_plan: As for :func:`step_planner`.

    Raises:
        ValueError: if the metadata has no lengths, where vLLM stops with an assertion.
    """
    seq, query = metadata.prefill_seq_lens_cpu, metadata.prefill_query_lens_cpu
    if seq is None or query is None:
        raise ValueError("metadata must have prefill_seq_lens_cpu and prefill_query_lens_cpu")
    seq, query, count = seq.numpy(), query.numpy(), metadata.num_prefills
    if seq.size != count or query.size != count:
        seq, query = seq[:count], query[:count]
    if seq.dtype != _INT32 or query.dtype != _INT32:
        seq, query = seq.astype(np.int64), query.astype(np.int64)
    return step_planner(
        np.ascontiguousarray(seq),
        np.ascontiguousarray(query),
        window=metadata.prefill_window_size,
        max_model_len=metadata.prefill_max_model_len,
        max_num_batched_tokens=metadata.prefill_max_num_batched_tokens,
        area_cap=area_cap,
        on_plan=on_plan,
    )
