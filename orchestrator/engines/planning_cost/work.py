"""What one engine step has to do in attention, counted by the planners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from orchestrator.engines.kernel_lab import LabArgs
from orchestrator.planning import ChunkPlan, LayerType, Share, plan_context_chunks, request_extents

ELEMENT_BYTES = 2
"""Of a cached and of a gathered element: bf16."""

OWN_LAUNCHES = 2
"""Launches of a layer and step beside its chunks: the expansion of the new rows, and attention among them."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Counts over some steps and layers. The first seven are what the kernel lab counts under the same names.

    Attributes:
        chunks: Fillings of the workspace.
        launches: Kernels that they take.
        gathered_rows: Rows copied into the workspace.
        padded_rows: Rows that chunks span beyond those.
        gather_bytes: What those copies read and write on one rank.
        all_gather_bytes: What a rank gets from others.
        flops: Operations of prefills.
        decode_flops: Operations of decoding.
        decode_bytes: Cache bytes that decoding reads.
        own_launches: Launches of a step whatever its chunks.
    """

    chunks: int = 0
    launches: int = 0
    gathered_rows: int = 0
    padded_rows: int = 0
    gather_bytes: int = 0
    all_gather_bytes: int = 0
    flops: int = 0
    decode_flops: int = 0
    decode_bytes: int = 0
    own_launches: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})

    def times(self, layers: int) -> Work:
        """The same work in so many layers."""
        return Work(**dict(zip(self.__dataclass_fields__, (layers * one for one in astuple(self)), strict=True)))

    @property
    def all_flops(self) -> int:
        """Operations of all kinds."""
        return self.flops + self.decode_flops

    @property
    def moved_bytes(self) -> int:
        """Bytes of all copies."""
        return self.gather_bytes + self.all_gather_bytes + self.decode_bytes

    @property
    def all_launches(self) -> int:
        """Launches of all kinds."""
        return self.launches + self.own_launches


def mla_work(
    args: LabArgs,
    prefills: Sequence[Share],
    decodes: Sequence[Share],
    *,
    workspace_rows: int,
    rule: str,
    topk: int | None,
) -> Work:
    """One dense or sparse MLA layer, on one rank.

    Args:
        prefills: What the step computes of prompts.
        decodes: Requests with one new token each.
        workspace_rows: Of the context workspace.
        rule: Of ``orchestrator.planning.RULES``.
        topk: Tokens that a query selects; None for a dense layer.
    """
    ranks = args.decode_context_parallel_size
    latent, heads = args.kv_lora_rank + args.qk_rope_head_dim, args.heads // ranks
    key = args.qk_nope_head_dim + args.qk_rope_head_dim
    expansion = 2 * args.kv_lora_rank * heads * (args.qk_nope_head_dim + args.v_head_dim)
    attention = 2 * heads * (key + args.v_head_dim)
    contexts = [one.context for one in prefills]
    # Sparse backends begin pieces anywhere, except on CUDA.
    aligned = topk is None or args.device.startswith("cuda")
    plan = plan_context_chunks(
        contexts,
        workspace_rows=workspace_rows,
        block_size=args.tokens_per_block,
        dcp=ranks,
        interleave=args.cp_kv_cache_interleave_size,
        rule=rule,
        align_to_block=aligned,
    )
    rows, tokens = int(plan.table[:, 3].sum()), int(plan.lengths.sum())
    row_bytes = latent * ELEMENT_BYTES
    expanded = tokens + sum(one.tokens for one in prefills)
    pairs = sum(_pairs(one, topk) for one in prefills)
    seen = sum(one.context + 1 if topk is None else min(one.context + 1, topk) for one in decodes)
    work = Work(
        chunks=len(plan),
        # The gather, the expansion, attention and the merge.
        launches=4 * len(plan),
        gathered_rows=tokens,
        gather_bytes=2 * rows * row_bytes,
        flops=expanded * expansion + pairs * attention,
        decode_flops=seen * 2 * heads * (latent + args.kv_lora_rank),
        decode_bytes=seen // ranks * row_bytes,
        own_launches=OWN_LAUNCHES,
    )
    if ranks == 1:
        return work
    return work + Work(
        # The exchange, and the reorganisation of what it brings.
        launches=2 * len(plan),
        padded_rows=ranks * rows - tokens,
        gather_bytes=2 * tokens * row_bytes,
        all_gather_bytes=(ranks - 1) * rows * row_bytes,
    )


def v4_work(
    args: LabArgs, kind: LayerType, prefills: Sequence[Share], decodes: Sequence[Share], *, plan: ChunkPlan, topk: int
) -> Work:
    """One layer of DeepSeek-V4.

    Args:
        plan: The chunks of the prefills.
        topk: Most compressed rows of a query; 0 for a layer without any.
    """
    gathered = 0
    if prefills:
        extents = request_extents(
            [one.context + one.tokens for one in prefills],
            [one.tokens for one in prefills],
            compress_ratio=kind.compress_ratio,
            window=args.window,
            has_compressed=kind.has_compressed,
        )
        gathered = int(np.add(*extents).sum())
    pairs = sum(_v4_pairs(one, kind, args.window, topk) for one in prefills)
    seen = sum(_v4_pairs(one, kind, args.window, topk) for one in decodes)
    return Work(
        chunks=len(plan),
        # Two gathers, the combination of indices and attention; without compressed rows one gather.
        launches=len(plan) * (4 if kind.has_compressed else 3),
        gathered_rows=gathered,
        padded_rows=plan.area - gathered,
        gather_bytes=2 * gathered * args.head_dim * ELEMENT_BYTES,
        flops=4 * args.heads * args.head_dim * pairs,
        decode_flops=4 * args.heads * args.head_dim * seen,
        decode_bytes=seen * args.head_dim * ELEMENT_BYTES,
        own_launches=OWN_LAUNCHES,
    )


def _pairs(share: Share, topk: int | None) -> int:
    """Pairs of a new token and a token that it attends to, itself included."""
    if topk is None:
        return share.tokens * share.context + share.tokens * (share.tokens + 1) // 2
    return _sum_of_minima(share.context + 1, share.tokens, 1, topk)


def _v4_pairs(share: Share, kind: LayerType, window: int, topk: int) -> int:
    pairs = _sum_of_minima(share.context + 1, share.tokens, 1, window)
    if kind.has_compressed:
        pairs += _sum_of_minima(share.context + 1, share.tokens, kind.compress_ratio, topk)
    return pairs


def _sum_of_minima(first: int, count: int, ratio: int, most: int) -> int:
    """``sum(min(n // ratio, most))`` over ``count`` whole numbers from ``first`` on."""
    return int(np.minimum(np.arange(first, first + count) // ratio, most).sum())
