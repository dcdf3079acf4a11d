"""Paged caches: blocks, tables, rings, and copies out of them into a workspace."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.caches import BlockPool, PagedCache
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.gather import Piece, gather
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows, RowFormat
from orchestrator.engines.kernel_lab.workspace import Scratch


def test_blocks_of_one_request_are_scattered_and_come_back() -> None:
    pool = BlockPool(100, 4, seed=1)
    table = pool.allocate(60)
    assert len(set(table.blocks)) == 60
    assert table.blocks != sorted(table.blocks)
    assert pool.free_blocks == 40
    with pytest.raises(LabError, match="41 blocks were asked for, 40 of 100 are free"):
        pool.allocate(41)
    pool.free(table)
    assert pool.free_blocks == 100
    assert BlockPool(100, 4, seed=1).allocate(60).blocks != BlockPool(100, 4, seed=2).allocate(60).blocks


FORMATS = st.sampled_from(
    [Fp8Rows(80, 16), PlainRows(5, torch.float32), PlainRows(6, torch.float32), PlainRows(8, torch.float32)]
)
"""Rows of 104, 20, 24 and 32 bytes: they are copied in words of 8, 4, 8 and 16."""


@given(rows_per_block=st.integers(1, 7), written=st.integers(1, 60), data=st.data(), row_format=FORMATS)
def test_gathered_rows_are_those_that_were_written(
    rows_per_block: int, written: int, data: st.DataObject, row_format: RowFormat
) -> None:
    blocks = -(-written // rows_per_block)
    pool = BlockPool(blocks + 3, rows_per_block, seed=written)
    cache = PagedCache(pool.size, rows_per_block, row_format)
    cache.by_block.zero_()
    table = pool.allocate(blocks)
    stored = row_format.encode(torch.randn(written, row_format.width))
    split = data.draw(st.integers(0, written))
    cache.write(table, 0, stored[:split])
    cache.write(table, split, stored[split:])
    rows = torch.empty(written, row_format.width)
    row_format.decode(stored, rows)

    start = data.draw(st.integers(0, written))
    count = data.draw(st.integers(0, written - start))
    to = data.draw(st.integers(0, 3))
    out = torch.full((to + count + 2, row_format.width), -1.0)
    gather(cache, [Piece(table, start, count, to)], out, Scratch())
    assert torch.equal(out[to : to + count], rows[start : start + count])
    assert bool((out[:to] == -1).all())
    assert bool((out[to + count :] == -1).all())
    picked = torch.arange(written).flip(0)
    assert torch.equal(cache.read(table, picked, torch.float32), rows.flip(0))


@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.integers(1, 6), min_size=1, max_size=20))
def test_a_ring_keeps_the_newest_rows(rows_per_block: int, blocks: int, steps: list[int]) -> None:
    pool = BlockPool(blocks + 2, rows_per_block, seed=3)
    cache = PagedCache(pool.size, rows_per_block, PlainRows(2, torch.float32))
    table = pool.allocate(blocks)
    capacity, end = blocks * rows_per_block, 0
    for count in steps:
        count = min(count, capacity)
        cache.write(table, end, torch.arange(end, end + count).unsqueeze(1).expand(-1, 2).float())
        end += count
        # A ring of whole blocks holds at least this many of the newest rows, wherever in a block the last one lies.
        kept = min(end, capacity)
        out = torch.empty(kept, 2)
        gather(cache, [Piece(table, end - kept, kept, 0)], out, Scratch())
        assert out[:, 0].tolist() == list(range(end - kept, end))


def test_rows_that_do_not_fit_are_refused() -> None:
    pool = BlockPool(4, 4, seed=0)
    cache, table = PagedCache(4, 4, PlainRows(2, torch.float32)), pool.allocate(4)
    with pytest.raises(LabError, match="lab-shape: rows 3 to 9 do not fit into 8 workspace rows"):
        gather(cache, [Piece(table, 0, 6, 3)], torch.empty(8, 2), Scratch())
