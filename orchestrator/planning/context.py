"""Chunks of cached context that an MLA prefill gathers into its workspace.

Since vLLM 0.28 requests are packed one after the other and a long one is cut (``plan_mla_context_chunks`` and
``build_mla_chunked_context_metadata``). Before, the workspace was split evenly over the requests that have context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning._arrays import REFUSED, Lengths, quick_array, whole_array
from orchestrator.planning._checks import context_parallel, whole
from orchestrator.planning.workspace import known_rule, workspace_alignment

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.planning._packing import Ints


class ContextChunk(NamedTuple):
    """One filling of the workspace.

    Attributes:
        request_start: First request.
        request_end: One past the last request.
        starts: Where each of their pieces begins in its context, in tokens.
        lengths: Tokens of each piece. Under the older rules a request that has no part in the chunk has length 0.
        rows: Workspace rows that a rank gathers: the tokens, or under decode context parallelism its padded share.
        is_continuation: Whether the first piece carries on from the chunk before.
    """

    request_start: int
    request_end: int
    starts: list[int]
    lengths: list[int]
    rows: int
    is_continuation: bool


class ContextPlan(Sequence[ContextChunk]):
    """Context chunks, in the order to run them, kept in arrays: a chunk is made when it is asked for.

    Attributes:
        table: Shape ``[chunks, 5]``: first request, first piece, pieces, rows, whether it is a continuation.
        starts: First token of each piece, shape ``[pieces]``.
        lengths: Tokens of each piece, shape ``[pieces]``.
    """

    __slots__ = ("lengths", "starts", "table")

    def __init__(self, table: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self.table = table
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> ContextChunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[ContextChunk]: ...
    def __getitem__(self, index: int | slice) -> ContextChunk | list[ContextChunk]:
        if isinstance(index, slice):
            return list(self)[index]
        request, piece, pieces, rows, continuation = self.table[index].tolist()
        own = slice(piece, piece + pieces)
        starts, lengths = self.starts[own].tolist(), self.lengths[own].tolist()
        return ContextChunk(request, request + pieces, starts, lengths, rows, bool(continuation))

    def __iter__(self) -> Iterator[ContextChunk]:
        starts, lengths = self.starts.tolist(), self.lengths.tolist()
        for request, piece, pieces, rows, continuation in self.table.tolist():
            end = piece + pieces
            yield ContextChunk(
                request, request + pieces, starts[piece:end], lengths[piece:end], rows, bool(continuation)
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContextPlan):
            return NotImplemented
        pairs = ((self.table, other.table), (self.starts, other.starts), (self.lengths, other.lengths))
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ContextPlan({list(self)})"


class _Geometry(NamedTuple):
    budget: int
    step: int
    virtual_block: int
    local_block: int


def plan_context_chunks(
    context_lens: Lengths,
    *,
    workspace_rows: int,
    block_size: int,
    dcp: int = 1,
    interleave: int = 1,
    rule: str = "0.28",
    align_to_block: bool = True,
) -> ContextPlan:
    """Plan the context chunks of a prefill batch.

    Fastest with a contiguous ``int32`` or ``int64`` array. The first call of a process loads compiled code; see
    :func:`orchestrator.planning.warm_up`.

    Args:
        context_lens: Cached tokens of each request, shape ``[requests]``, each at least 0.
        workspace_rows: Rows of the workspace without DCP's extra gather rows.
        block_size: Tokens in a KV cache block, at least 1.
        dcp: Decode context parallel ranks, at least 1.
        interleave: Consecutive tokens that one rank keeps, at least 1.
        rule: ``"0.28"`` and ``"pr-50484"`` pack the requests, ``"0.8"`` and ``"0.11"`` split the workspace evenly.
        align_to_block: Whether pieces begin on a block. Dense backends always ask for it; sparse ones only on CUDA.

    Returns:
        The plan; empty when no request has context.

    Raises:
        ValueError: if an argument is out of range, the workspace holds no aligned step, or, under the older rules, it
            does not give each request a block (or a multiple of ``dcp``), where vLLM stops with an assertion.
    """
    if known_rule(rule) in ("0.8", "0.11"):
        return _even_split(context_lens, workspace_rows, block_size, dcp, interleave, align_to_block)
    shape = _geometry(workspace_rows, block_size, dcp, interleave, align_to_block)
    try:
        return ContextPlan(*_pack(quick_array(context_lens), *shape))
    except REFUSED:
        # Another kind of array, or a negative length: the checks below say which.
        return ContextPlan(*_pack(_checked(context_lens), *shape))


def _checked(context_lens: Lengths) -> NDArray[np.int64]:
    lengths = whole_array("context_lens", context_lens)
    if (lengths < 0).any():
        at = int((lengths < 0).argmax())
        raise ValueError(f"context_lens must be at least 0, got {lengths[at]} at request {at}")
    return lengths


# Typed, or a float would find the entry of an equal int.
@lru_cache(maxsize=64, typed=True)
def _geometry(
    workspace_rows: int,
    block_size: int,
    dcp: int,
    interleave: int,
    align_to_block: bool,
) -> _Geometry:
    block, ranks, run = context_parallel(block_size, dcp, interleave)
    rows = whole("workspace_rows", workspace_rows)
    step = workspace_alignment(block_size=block if align_to_block else run, dcp=ranks, interleave=run)
    if ranks == 1 and not align_to_block:
        step = 1
    if rows < step:
        raise ValueError(f"workspace_rows must hold one aligned step of {step} rows, got {rows}")
    if ranks == 1:
        return _Geometry(rows, step, 1, 1)
    return _Geometry(rows // ranks, step, ranks * run, run)


def _even_split(
    context_lens: Lengths,
    workspace_rows: int,
    block_size: int,
    dcp: int,
    interleave: int,
    align_to_block: bool,
) -> ContextPlan:
    block, ranks, run = context_parallel(block_size, dcp, interleave)
    rows = whole("workspace_rows", workspace_rows)
    lengths = _checked(context_lens)
    with_context = int((lengths > 0).sum())
    if with_context == 0:
        return ContextPlan(np.empty((0, 5), np.int64), _NONE, _NONE)
    share = rows // with_context
    if align_to_block:
        share -= share % block
    if share < 1:
        raise ValueError(f"workspace_rows must give each of {with_context} requests a block of {block}, got {rows}")
    if share % ranks:
        raise ValueError(f"workspace_rows must give each request a multiple of dcp={ranks} rows, got {share}")
    starts = np.arange(-(-int(lengths.max()) // share), dtype=np.int64)[:, None] * share
    pieces = np.clip(lengths - starts, 0, share)
    gathered = pieces
    if ranks > 1:
        # Every rank pads its share of a request, and of the even split, to whole interleave runs.
        local = -(-lengths // (ranks * run)) * run
        local_share = -(-share // (ranks * run)) * run
        gathered = np.clip(local - starts // share * local_share, 0, local_share)
    count = lengths.size
    chunks = len(starts)
    table = np.zeros((chunks, 5), np.int64)
    table[:, 1] = np.arange(chunks) * count
    table[:, 2] = count
    table[:, 3] = gathered.sum(axis=1)
    table[1:, 4] = 1
    return ContextPlan(table, np.broadcast_to(starts, pieces.shape).ravel(), pieces.ravel())


_NONE: Final = np.empty(0, np.int64)


def _load_pack(
    context_lens: Ints, budget: int, step: int, virtual_block: int, local_block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Load the compiled loop in place of this function, then call it: see the planner of chunks for why."""
    global _pack
    from orchestrator.planning._packing import pack_contexts

    _pack = pack_contexts
    return pack_contexts(context_lens, budget, step, virtual_block, local_block)


_pack: Callable[[Ints, int, int, int, int], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = _load_pack
