"""Copy rows of requests out of a paged cache into a workspace, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from orchestrator.engines.kernel_lab.block_copy import can_copy, copy_blocks
from orchestrator.engines.kernel_lab.caches import BlockTable, PagedCache
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.rows import PlainRows
from orchestrator.engines.kernel_lab.workspace import Scratch


@dataclass(frozen=True)
class Piece:
    """Rows of one request and where they go.

    Attributes:
        table: Blocks of the request.
        start: Its first row that is wanted.
        count: Rows, at least 0.
        to: Row of the workspace that gets the first.
    """

    table: BlockTable
    start: int
    count: int
    to: int


def gather(cache: PagedCache, pieces: Sequence[Piece], out: torch.Tensor, scratch: Scratch) -> None:
    """Fill rows of ``out`` with rows of the cache, unpacked if the cache packs them.

    Args:
        out: ``[rows, width]``. What no piece names is left alone.

    Raises:
        LabError: ``lab-shape`` when a piece does not fit into ``out``.
    """
    is_plain = isinstance(cache.format, PlainRows)
    for piece in pieces:
        if piece.to < 0 or piece.to + piece.count > out.shape[0]:
            raise LabError(
                "lab-shape",
                f"rows {piece.to} to {piece.to + piece.count} do not fit into {out.shape[0]} workspace rows",
            )
        target = out[piece.to : piece.to + piece.count]
        if is_plain:
            _copy_rows(cache, piece, target)
        elif piece.count:
            stored = scratch.take("records", (piece.count, cache.format.stored_width), cache.format.stored_dtype)
            _copy_rows(cache, piece, stored)
            cache.format.decode(stored, target)


def _copy_rows(cache: PagedCache, piece: Piece, target: torch.Tensor) -> None:
    """Stored rows as they are: whole blocks in one call, what is cut off at both ends row by row."""
    step, width = cache.rows_per_block, target.shape[1]
    end = piece.start + piece.count
    first_whole, last_whole = -(-piece.start // step), end // step
    if first_whole >= last_whole:
        _copy_part(cache, piece.table, piece.start, end, target)
        return
    head = first_whole * step - piece.start
    tail = head + (last_whole - first_whole) * step
    _copy_part(cache, piece.table, piece.start, first_whole * step, target[:head])
    blocks = target[head:tail].view(last_whole - first_whole, step * width)
    ids = piece.table.ids_of(first_whole, last_whole)
    if can_copy(cache.by_block):
        copy_blocks(cache.by_block, ids, blocks)
    else:
        word = _word_of(width * target.element_size(), target.dtype)
        torch.index_select(cache.by_block.view(word), 0, ids, out=blocks.view(word))
    _copy_part(cache, piece.table, last_whole * step, end, target[tail:])


def _word_of(row_bytes: int, dtype: torch.dtype) -> torch.dtype:
    """The widest type that rows consist of; no bit changes.

    Of blocks of fewer than 32,768 elements, torch copies each in one piece and shares them out among its threads; of
    larger ones it copies one after the other, all threads together, which takes twice as long.
    """
    if row_bytes % 16 == 0:
        return torch.complex128
    return torch.int64 if row_bytes % 8 == 0 else dtype


def _copy_part(cache: PagedCache, table: BlockTable, start: int, end: int, target: torch.Tensor) -> None:
    """Rows ``start`` to ``end - 1``, which touch at most two blocks and fill none of them."""
    step = cache.rows_per_block
    while start < end:
        stop = min(end, (start // step + 1) * step)
        at = table.block_at(start // step) * step + start % step
        target[: stop - start].copy_(cache.flat[at : at + stop - start])
        target = target[stop - start :]
        start = stop
