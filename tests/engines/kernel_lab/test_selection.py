"""Which rows a query selects."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.selection import hidden_mask, select_rows


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
