"""Which rows a query selects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.selection import hidden_mask, select_rows, selection_of


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.sampled_from([1, 2, 4, 128]), st.integers(1, 200))
def test_as_many_rows_as_are_visible_up_to_topk(positions: list[int], ratio: int, topk: int) -> None:
    chosen = select_rows(torch.tensor(positions), ratio=ratio, topk=topk)
    assert chosen.dtype == torch.int32
    for position, row in zip(positions, chosen.tolist(), strict=True):
        visible = (position + 1) // ratio
        own = [one for one in row if one >= 0]
        assert row == own + [-1] * (topk - len(own))
        assert len(own) == min(visible, topk)
        assert own == sorted(set(own))
        assert not own or (own[0] >= 0 and own[-1] == visible - 1)


def test_neighbours_share_most_rows() -> None:
    chosen = select_rows(torch.arange(20_000, 20_128), ratio=4, topk=512)
    together = set(chosen.flatten().tolist())
    assert len(together) < 512 + 64


@given(st.integers(0, 40), st.integers(0, 30), st.integers(1, 20))
def test_a_piece_hides_what_was_not_selected(start: int, count: int, topk: int) -> None:
    positions = torch.arange(30, 36)
    chosen = select_rows(positions, ratio=1, topk=topk)
    hidden = hidden_mask(chosen, start, count, 8)
    assert tuple(hidden.shape) == (8, count)
    for number in range(8):
        own = set(chosen[number].tolist()) if number < 6 else set()
        assert hidden[number].tolist() == [start + column not in own for column in range(count)]


@pytest.mark.parametrize(("ratio", "topk", "columns"), [(4, 0, 0), (128, 50, 0), (4, 50, 10), (4, 6, 6), (1, 50, 41)])
def test_a_batch_selects_no_wider_than_its_longest_request_needs(ratio: int, topk: int, columns: int) -> None:
    hashes = np.zeros(41, dtype=np.uint64)
    batch = Batch([Member({}, hashes, 41, 3, 0), Member({}, hashes, 5, 5, 3)], torch.device("cpu"))
    found = selection_of(batch, ratio=ratio, topk=topk)
    assert found.shape == (8, columns)
    if columns:
        whole = select_rows(batch.positions, ratio=ratio, topk=topk)
        assert torch.equal(found, whole[:, :columns])
        assert bool((whole[:, columns:] == -1).all())
