"""Kernels for a GPU in Triton: the gather out of a paged cache and sparse attention with sinks.

Both have the plain torch path as their reference: the gather gives the same bits, attention the same numbers within the
rounding of its dtype. One launch does the work of all requests of a chunk. What has no kernel here, dense attention
above all, runs in plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.errors import LabError, require_shape
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import TorchKernels
from orchestrator.engines.kernel_lab.rows import PlainRows
from orchestrator.engines.kernel_lab.sparse import QuerySpan, SparseCall

_TILE_ROWS: Final = 16
"""Rows that a program of the gather copies."""

_TILE_COLUMNS: Final = 256
"""Words of four bytes of each row that it copies; with the rows above, 16 KiB."""

_NAMED_BYTES: Final = 64
"""Bytes of one column of the named rows that attention takes at once: 32 rows of bf16, 16 of fp32. With 512 elements
that is 32 KiB of shared memory, and twice as much with the rows that are loaded meanwhile."""

_LEAST_HEADS: Final = 16
"""The matrix units of a GPU take no fewer rows."""

_MOST_HEADS: Final = 32
"""Heads of one program: with 512 fp32 sums for each, 64 KiB of registers."""


@triton.jit  # type: ignore[untyped-decorator]
def _gather_kernel(  # type: ignore[no-untyped-def]
    cache,
    out,
    pieces,
    row_words,
    rows_per_block,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):
    """A tile of one piece. ``pieces`` has for each the address of its block table, the table's length, its first row,
    its count and its place in ``out``."""
    piece = pieces + tl.program_id(0) * 5
    count = tl.load(piece + 3)
    first = tl.program_id(1) * tile_rows
    if first < count:
        table = tl.load(piece).to(tl.pointer_type(tl.int64))
        rows = first + tl.arange(0, tile_rows)
        is_row = rows < count
        wanted = tl.load(piece + 2) + rows
        blocks = tl.load(table + (wanted // rows_per_block) % tl.load(piece + 1), mask=is_row, other=0)
        slots = blocks * rows_per_block + wanted % rows_per_block
        to = tl.load(piece + 4) + rows
        columns = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
        mask = is_row[:, None] & (columns < row_words)[None, :]
        words = tl.load(cache + slots[:, None] * row_words + columns[None, :], mask=mask)
        tl.store(out + to[:, None] * row_words + columns[None, :], words, mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _sparse_kernel(  # type: ignore[no-untyped-def]
    queries,
    rows,
    indices,
    lengths,
    sink,
    out,
    places,
    heads,
    width,
    columns,
    tile_heads: tl.constexpr,
    tile_width: tl.constexpr,
    step: tl.constexpr,
    precision: tl.constexpr,
):
    """Some heads of one query, over all rows that it names, with the softmax of Milakov and Gimelshein (2018), which
    keeps a running maximum. The sink is where that begins: a weight of 1 without a value. ``places`` has for each
    query its row in ``queries`` and in ``indices``."""
    query = tl.load(places + 2 * tl.program_id(0))
    at = tl.load(places + 2 * tl.program_id(0) + 1)
    head = tl.program_id(1) * tile_heads + tl.arange(0, tile_heads)
    element = tl.arange(0, tile_width)
    is_head, is_element = head < heads, element < width
    mask = is_head[:, None] & is_element[None, :]
    place = (query * heads + head[:, None]) * width + element[None, :]
    own = tl.load(queries + place, mask=mask, other=0.0)
    largest = tl.load(sink + head, mask=is_head, other=0.0)
    total = tl.full([tile_heads], 1.0, tl.float32)
    weighted = tl.zeros([tile_heads, tile_width], tl.float32)
    length = tl.load(lengths + at)
    for start in range(0, length, step):
        number = start + tl.arange(0, step)
        row = tl.load(indices + at * columns + number, mask=number < length, other=-1).to(tl.int64)
        is_named = row >= 0
        keys = tl.load(
            rows + row[:, None] * width + element[None, :], mask=is_named[:, None] & is_element[None, :], other=0.0
        )
        scores = tl.dot(own, tl.trans(keys), input_precision=precision)
        scores = tl.where(is_named[None, :], scores, float("-inf"))
        raised = tl.maximum(largest, tl.max(scores, 1))
        fading = tl.exp2(largest - raised)
        weights = tl.exp2(scores - raised[:, None])
        total = total * fading + tl.sum(weights, 1)
        weighted = weighted * fading[:, None] + tl.dot(weights.to(keys.dtype), keys, input_precision=precision)
        largest = raised
    tl.store(out + place, (weighted / total[:, None]).to(out.dtype.element_ty), mask=mask)


class TritonKernels(TorchKernels):
    """Triton where there is a kernel, plain torch elsewhere."""

    name = "triton"

    def gather(self, cache: PagedCache, pieces: Sequence[Piece], out: torch.Tensor) -> None:
        """One launch for all pieces. Packed records are copied as they are and unpacked by torch.

        Raises:
            LabError: ``lab-shape`` when a piece does not fit into ``out``.
        """
        for piece in pieces:
            end = piece.to + piece.count
            if piece.to < 0 or end > out.shape[0]:
                raise LabError("lab-shape", f"rows {piece.to} to {end} do not fit into {out.shape[0]} workspace rows")
        filled = [piece for piece in pieces if piece.count]
        if not filled:
            return
        if isinstance(cache.format, PlainRows):
            _copy(cache, filled, [piece.to for piece in filled], out)
            return
        width = cache.format.stored_width
        starts = [sum(piece.count for piece in filled[:place]) for place in range(len(filled))]
        total = starts[-1] + filled[-1].count
        stored = self.scratch.take("records", (total, width), cache.format.stored_dtype)
        _copy(cache, filled, starts, stored)
        for piece, start in zip(filled, starts, strict=True):
            cache.format.decode(stored[start : start + piece.count], out[piece.to : piece.to + piece.count])

    def sparse_attention(self, call: SparseCall) -> None:
        """One launch; a program takes one query and up to 32 heads, so the chunk of a request changes no bit.

        Raises:
            LabError: ``lab-shape``.
        """
        _, heads, width = call.queries.shape
        require_shape("rows", tuple(call.rows.shape), (None, None, width))
        require_shape("sink", tuple(call.sink.shape), (heads,))
        require_shape("out", tuple(call.out.shape), tuple(call.queries.shape))
        require_shape("lengths", tuple(call.lengths.shape), (call.indices.shape[0],))
        if not call.spans:
            return
        places = _places(call.spans)
        together = min(_MOST_HEADS, max(_LEAST_HEADS, triton.next_power_of_2(heads)))
        device = call.queries.device
        _launch(
            _sparse_kernel,
            (places.shape[0], triton.cdiv(heads, together)),
            device,
            call.queries,
            call.rows,
            call.indices,
            call.lengths,
            call.sink,
            call.out,
            places.to(device, non_blocking=True),
            heads,
            width,
            call.indices.stride(0),
            tile_heads=together,
            tile_width=max(16, triton.next_power_of_2(width)),
            step=_NAMED_BYTES // call.rows.element_size(),
            precision="ieee" if call.queries.dtype == torch.float32 else "tf32",
            num_warps=8 if together == _MOST_HEADS else 4,
            num_stages=2,
        )


def _copy(cache: PagedCache, pieces: Sequence[Piece], places: Sequence[int], out: torch.Tensor) -> None:
    """Stored rows of all pieces to these rows of ``out``, which has the layout of the cache."""
    word = torch.int32 if cache.row_bytes % 4 == 0 else torch.uint8
    source, target = cache.flat.view(word), out.view(word)
    words = source.shape[1]
    described = torch.tensor(
        [
            (piece.table.ids.data_ptr(), len(piece.table.blocks), piece.start, piece.count, to)
            for piece, to in zip(pieces, places, strict=True)
        ],
        dtype=torch.int64,
    ).to(out.device, non_blocking=True)
    longest = max(piece.count for piece in pieces)
    _launch(
        _gather_kernel,
        (len(pieces), triton.cdiv(longest, _TILE_ROWS), triton.cdiv(words, _TILE_COLUMNS)),
        out.device,
        source,
        target,
        described,
        words,
        cache.rows_per_block,
        tile_rows=_TILE_ROWS,
        tile_columns=_TILE_COLUMNS,
        num_warps=4,
    )


def _places(spans: Sequence[QuerySpan]) -> torch.Tensor:
    """Row of each query among the queries and in the index tensor, ``[queries of the chunk, 2]``."""
    queries = torch.cat([torch.arange(span.query, span.query + span.count) for span in spans])
    indices = torch.cat([torch.arange(span.index, span.index + span.count) for span in spans])
    return torch.stack((queries, indices), dim=1)


def _launch(kernel: Any, grid: tuple[int, ...], device: torch.device, *args: Any, **options: Any) -> None:
    """Run a kernel on a device that need not be the current one."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            kernel[grid](*args, **options)
    else:
        kernel[grid](*args, **options)
