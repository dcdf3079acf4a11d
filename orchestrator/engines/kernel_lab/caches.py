"""Paged caches: rows in blocks, and for each request a table of its blocks."""

from __future__ import annotations

import random
from typing import Final

import torch

from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.rows import RowFormat

_NO_BLOCK: Final = -1


class BlockTable:
    """The blocks of one request in one group of caches.

    Row ``r`` of the request lies in the block at place ``r // rows_per_block``; a ring, which a sliding window keeps,
    comes back to its first block after the last.

    Args:
        blocks: Block numbers, in the order of the request's rows.
        rows_per_block: Rows in a block, at least 1.
    """

    def __init__(self, blocks: list[int], rows_per_block: int, device: torch.device) -> None:
        self.blocks = blocks
        self.rows_per_block = rows_per_block
        self.ids = torch.tensor(blocks, dtype=torch.int64, device=device)

    def block_at(self, place: int) -> int:
        """Number of the block at a place of the request."""
        return self.blocks[place % len(self.blocks)]

    def ids_of(self, first: int, last: int) -> torch.Tensor:
        """Numbers of the blocks at places ``first`` to ``last - 1``."""
        count = len(self.blocks)
        if last <= count:
            return self.ids[first:last]
        return self.ids[torch.arange(first, last, device=self.ids.device) % count]

    def slots(self, start: int, count: int) -> torch.Tensor:
        """Where rows ``start`` to ``start + count - 1`` lie in the flat cache."""
        rows = torch.arange(start, start + count, device=self.ids.device)
        places = torch.div(rows, self.rows_per_block, rounding_mode="floor")
        return self.ids[places % len(self.blocks)] * self.rows_per_block + rows % self.rows_per_block


class BlockPool:
    """Free blocks of a group of caches. They are handed out in a seeded random order, as in a server that has run for a
    while, so that neighbouring blocks of a request are no neighbours in memory.

    Args:
        blocks: How many there are.
        rows_per_block: Rows in a block, at least 1.
        seed: Of the order.
    """

    def __init__(self, blocks: int, rows_per_block: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        self.size = blocks
        self.rows_per_block = rows_per_block
        self._device = torch.device(device)
        self._free = list(range(blocks))
        random.Random(seed).shuffle(self._free)

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return len(self._free)

    def allocate(self, count: int) -> BlockTable:
        """A table of ``count`` blocks.

        Raises:
            LabError: ``lab-shape`` when there are not that many; the scheduler asks before.
        """
        if count > len(self._free):
            raise LabError("lab-shape", f"{count} blocks were asked for, {len(self._free)} of {self.size} are free")
        taken = self._free[-count:] if count else []
        del self._free[len(self._free) - count :]
        return BlockTable(taken, self.rows_per_block, self._device)

    def free(self, table: BlockTable) -> None:
        """Take the blocks of a table back."""
        self._free.extend(reversed(table.blocks))
        table.blocks = []


class PagedCache:
    """The rows of one layer in blocks.

    Args:
        blocks: Number of blocks.
        rows_per_block: Rows in a block, at least 1.
        rows: How a row is stored.
    """

    def __init__(
        self, blocks: int, rows_per_block: int, rows: RowFormat, *, device: torch.device | str = "cpu"
    ) -> None:
        self.format = rows
        self.rows_per_block = rows_per_block
        width = rows.stored_width
        # One block is one row of this view: whole blocks are copied in one piece.
        self.by_block = torch.empty(blocks, rows_per_block * width, dtype=rows.stored_dtype, device=device)
        self.flat = self.by_block.view(blocks * rows_per_block, width)

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        size: int = self.format.stored_width * self.format.stored_dtype.itemsize
        return size

    def write(self, table: BlockTable, start: int, stored: torch.Tensor) -> None:
        """Put rows in their stored form at ``start`` and after."""
        if stored.shape[0]:
            self.flat.index_copy_(0, table.slots(start, stored.shape[0]), stored)

    def read(self, table: BlockTable, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Single rows of a request, ``[rows, width]``.

        Args:
            rows: Their numbers in the request, ``int64``.
        """
        places = torch.div(rows, self.rows_per_block, rounding_mode="floor")
        stored = self.flat[table.ids[places % len(table.blocks)] * self.rows_per_block + rows % self.rows_per_block]
        out = torch.empty(rows.shape[0], self.format.width, dtype=dtype, device=stored.device)
        self.format.decode(stored, out)
        return out
