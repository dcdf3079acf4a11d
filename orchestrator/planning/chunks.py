"""Chunks of a DeepSeek-V4 prefill batch: which requests share one gather workspace.

A chunk of ``count`` requests spans ``count * width`` workspace rows, where ``width`` is the most compressed rows of any
of them plus the most window rows of any. Its area must stay within the area limit. Source of the batch order and of the
limit: ``DeepseekSparseSWAMetadata.get_prefill_chunk_plan`` of vLLM 0.24 and later; of :func:`fixed_chunks`: the forward
passes of vLLM 0.20 to 0.23.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal, SupportsIndex, cast, get_args

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning import plans
from orchestrator.planning._arrays import REFUSED, Lengths, quick_array, whole_array
from orchestrator.planning._checks import whole
from orchestrator.planning.layers import gathers_compressed
from orchestrator.planning.plans import Chunk, ChunkPlan

if TYPE_CHECKING:
    from orchestrator.planning._greedy import Ints, Quad

Order = Literal["batch", "width", "optimal"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)

#: Requests in a chunk of vLLM up to 0.23, and the factor of the area limit since (a class constant, not a flag).
PREFILL_CHUNK_SIZE: Final = 4

# Calling the class would check its arguments in Python, at four times the cost.
_new_tuple = cast("Callable[[type[Chunk], Quad], Chunk]", tuple.__new__)


def area_limit(
    *,
    prefill_chunk_size: SupportsIndex,
    compress_ratio: SupportsIndex,
    max_model_len: SupportsIndex,
    window: SupportsIndex,
    max_num_batched_tokens: SupportsIndex,
    has_compressed: bool | None = None,
) -> int:
    """Most workspace rows that one chunk may span: ``prefill_chunk_size`` requests of the largest width.

    Args:
        prefill_chunk_size: vLLM's ``PREFILL_CHUNK_SIZE``, 4 unless patched; at least 1.
        compress_ratio: Tokens per compressed row; at least 1, or 0 for a layer without compressed rows.
        max_model_len: Tokens, at least 1.
        window: Tokens of the sliding window, at least 1.
        max_num_batched_tokens: Tokens in one engine step, at least 1.
        has_compressed: Whether the layer gathers compressed rows. ``None``: a ratio above 1 does.

    Raises:
        ValueError: if an argument is out of range, or the ratio is 0 and the layer gathers compressed rows.
    """
    ratio, compressed = _layer(compress_ratio, has_compressed)
    length = whole("max_model_len", max_model_len)
    pool = -(-length // ratio) if compressed else 0
    return whole("prefill_chunk_size", prefill_chunk_size) * (
        pool + whole("window", window) + whole("max_num_batched_tokens", max_num_batched_tokens)
    )


def plan_prefill_chunks(
    seq_lens: Lengths,
    query_lens: Lengths,
    *,
    compress_ratio: int,
    window: int,
    area_limit: int,
    has_compressed: bool | None = None,
    order: str = "batch",
    launch_rows: int = plans.LAUNCH_ROWS,
) -> ChunkPlan:
    """Group prefill requests into chunks.

    Fastest with contiguous ``int32`` or ``int64`` arrays; lists and other integer arrays are converted. The first call
    of a process loads numba (about half a second), and compiles for a second or so when no cached code is found;
    :func:`orchestrator.planning.warm_up` pays that in advance.

    Args:
        seq_lens: Tokens of each request with its context, shape ``[requests]``, each at least 1.
        query_lens: Tokens of each request in this step, shape ``[requests]``, each from 1 to its ``seq_lens``.
        compress_ratio: Tokens per compressed row; at least 1, or 0 for a layer without compressed rows.
        window: Tokens of the sliding window, at least 1.
        area_limit: Rows, from :func:`area_limit`; at least 1.
        has_compressed: Whether the layer gathers compressed rows. ``None``: a ratio above 1 does.
        order: ``"batch"`` is vLLM's greedy. ``"width"`` sorts the requests by width, narrow first, and is then as
            greedy. ``"optimal"`` chooses order and grouping for the least ``launch_rows * chunks + area``.
        launch_rows: What one more chunk costs, in rows; at least 0. Only ``"optimal"`` uses it.

    Returns:
        A list of :class:`Chunk`, in the order to run them. ``start`` and ``end`` count in the order of
        ``plan.permutation``, which is ``None`` for the batch order. A request wider than the limit is alone in its
        chunk, as in vLLM, and ``plan.oversize`` names that chunk.

    Raises:
        ValueError: if an argument is out of range, the arrays differ in length, or a query is longer than its sequence.
    """
    if order == "batch":
        # Compiled code would cut a float silently, hence the test of the types. What it refuses is explained below.
        if type(area_limit) is int and type(compress_ratio) is int and type(window) is int:
            gathers = compress_ratio > 1 if has_compressed is None else has_compressed
            try:
                if type(seq_lens) is not np.ndarray or type(query_lens) is not np.ndarray:
                    seq_lens, query_lens = quick_array(seq_lens), quick_array(query_lens)
                chunks = _greedy(seq_lens, query_lens, compress_ratio, gathers, window, area_limit, True)
                plan = ChunkPlan(map(_new_tuple, repeat(Chunk), chunks))
                plan.area_limit = area_limit
                return plan
            except REFUSED:
                pass
    elif order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
    batch = _Batch(seq_lens, query_lens, compress_ratio, window, area_limit, has_compressed)
    if order == "optimal":
        return plans.optimal(
            *batch.extents(), area_limit=batch.limit, launch_rows=whole("launch_rows", launch_rows, least=0)
        )
    permutation = None
    if order == "width":
        permutation = np.argsort(np.add(*batch.extents()), kind="stable")
    return ChunkPlan.of(batch.greedy(permutation), batch.limit, permutation)


def request_extents(
    seq_lens: Lengths, query_lens: Lengths, *, compress_ratio: int, window: int, has_compressed: bool | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows and window rows that each request needs: its parts of a chunk's width.

    Raises:
        ValueError: as :func:`plan_prefill_chunks`.
    """
    return _Batch(seq_lens, query_lens, compress_ratio, window, 1, has_compressed).extents()


def plan_prefill_tuples(
    seq_lens: Ints, query_lens: Ints, compress_ratio: int, has_compressed: bool, window: int, area_limit: int
) -> list[Quad]:
    """Plan as vLLM does, in vLLM's own form: ``(start, end, compressed, width)`` per chunk, in batch order.

    For callers that hold lengths which vLLM made, so nothing but the shape and the ratio is checked: a query that is
    longer than its sequence counts as one without context, as in vLLM.

    Args:
        seq_lens: Contiguous ``int32`` or ``int64`` array, shape ``[requests]``.
        query_lens: The same kind of array, shape ``[requests]``.
        compress_ratio: Tokens per compressed row, at least 1 if ``has_compressed``.
        has_compressed: Whether the layer gathers compressed rows.
        window: Tokens of the sliding window.
        area_limit: Rows, from :func:`area_limit`.

    Raises:
        ValueError: if the arrays differ in length, or a compressed layer has a ratio below 1.
        TypeError: if an array is of another kind.
    """
    return _greedy(seq_lens, query_lens, compress_ratio, has_compressed, window, area_limit, False)


def plan_prefill_array(
    seq_lens: Lengths,
    query_lens: Lengths,
    *,
    compress_ratio: int,
    window: int,
    area_limit: int,
    has_compressed: bool | None = None,
) -> NDArray[np.int64]:
    """:func:`plan_prefill_chunks` in batch order, as an array of shape ``[chunks, 4]`` with the fields of a chunk.

    Raises:
        ValueError: as :func:`plan_prefill_chunks`.
    """
    if type(area_limit) is int and type(compress_ratio) is int and type(window) is int:
        gathers = compress_ratio > 1 if has_compressed is None else has_compressed
        try:
            if type(seq_lens) is not np.ndarray or type(query_lens) is not np.ndarray:
                seq_lens, query_lens = quick_array(seq_lens), quick_array(query_lens)
            return _greedy_rows(seq_lens, query_lens, compress_ratio, gathers, window, area_limit)
        except REFUSED:
            pass
    batch = _Batch(seq_lens, query_lens, compress_ratio, window, area_limit, has_compressed)
    return _greedy_rows(batch.seq, batch.query, batch.ratio, batch.compressed, batch.window, batch.limit)


def fixed_chunks(
    num_prefills: SupportsIndex,
    *,
    compress_ratio: SupportsIndex,
    max_model_len: SupportsIndex,
    window: SupportsIndex,
    max_num_batched_tokens: SupportsIndex,
    has_compressed: bool | None = None,
    prefill_chunk_size: SupportsIndex = PREFILL_CHUNK_SIZE,
) -> ChunkPlan:
    """Chunks of vLLM 0.20 to 0.23: always ``prefill_chunk_size`` requests, always the largest width.

    Args:
        num_prefills: Requests, at least 0.
        compress_ratio, max_model_len, window, max_num_batched_tokens, has_compressed, prefill_chunk_size: As for
            :func:`area_limit`.

    Raises:
        ValueError: if an argument is out of range.
    """
    count = whole("num_prefills", num_prefills, least=0)
    size = whole("prefill_chunk_size", prefill_chunk_size)
    ratio, compressed = _layer(compress_ratio, has_compressed)
    limit = area_limit(
        prefill_chunk_size=size,
        compress_ratio=ratio,
        max_model_len=max_model_len,
        window=window,
        max_num_batched_tokens=max_num_batched_tokens,
        has_compressed=compressed,
    )
    pool = -(-whole("max_model_len", max_model_len) // ratio) if compressed else 0
    starts = range(0, count, size)
    return ChunkPlan.of([(first, min(first + size, count), pool, limit // size) for first in starts], limit)


class _Batch:
    """Checked arguments of one planning call."""

    def __init__(
        self,
        seq_lens: Lengths,
        query_lens: Lengths,
        compress_ratio: int,
        window: int,
        limit: int,
        has_compressed: bool | None,
    ) -> None:
        self.ratio, self.compressed = _layer(compress_ratio, has_compressed)
        self.window = whole("window", window)
        self.limit = whole("area_limit", limit)
        self.seq = whole_array("seq_lens", seq_lens)
        self.query = whole_array("query_lens", query_lens)
        if self.seq.size != self.query.size:
            raise ValueError(
                f"query_lens must have the length of seq_lens, got {self.query.size} and {self.seq.size} requests"
            )
        self._refuse("query_lens must be at least 1", self.query < 1)
        self._refuse("query_lens must not exceed seq_lens", self.query > self.seq)

    def _refuse(self, rule: str, wrong: NDArray[np.bool_]) -> None:
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(f"{rule}, got {self.query[at]} of a sequence of {self.seq[at]} at request {at}")

    def extents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compressed rows and window rows that each request needs."""
        prefix = np.minimum(self.seq - self.query, self.window - 1)
        pool = self.seq // self.ratio if self.compressed else np.zeros_like(self.seq)
        return pool, self.query + prefix

    def greedy(self, permutation: NDArray[np.int64] | None) -> list[Quad]:
        seq, query = (self.seq, self.query) if permutation is None else (self.seq[permutation], self.query[permutation])
        return _greedy(seq, query, self.ratio, self.compressed, self.window, self.limit, True)


def _layer(compress_ratio: SupportsIndex, has_compressed: bool | None) -> tuple[int, bool]:
    ratio = whole("compress_ratio", compress_ratio, least=0)
    compressed = gathers_compressed(ratio, has_compressed)
    if compressed:
        whole("compress_ratio of a layer with compressed rows", ratio)
    return ratio, compressed


# Each loop is loaded by a function that it then replaces: a test for it in every call would be a tenth of a small plan.
def _load_greedy(
    seq_lens: Ints, query_lens: Ints, ratio: int, has_compressed: bool, window: int, limit: int, strict: bool
) -> list[Quad]:
    global _greedy
    from orchestrator.planning._greedy import greedy_tuples

    _greedy = greedy_tuples
    return greedy_tuples(seq_lens, query_lens, ratio, has_compressed, window, limit, strict)


def _load_greedy_rows(
    seq_lens: Ints, query_lens: Ints, ratio: int, has_compressed: bool, window: int, limit: int
) -> NDArray[np.int64]:
    global _greedy_rows
    from orchestrator.planning._greedy import greedy_array

    _greedy_rows = greedy_array
    return greedy_array(seq_lens, query_lens, ratio, has_compressed, window, limit)


_greedy: Callable[[Ints, Ints, int, bool, int, int, bool], list[Quad]] = _load_greedy
_greedy_rows: Callable[[Ints, Ints, int, bool, int, int], NDArray[np.int64]] = _load_greedy_rows
