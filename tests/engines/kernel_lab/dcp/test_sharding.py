"""Who keeps which row: against a walk over the tokens, and against vLLM's own function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.dcp.sharding import Sharding
from orchestrator.engines.kernel_lab.dcp.source import reorganise

SHARDINGS = st.builds(Sharding, st.integers(1, 17), st.sampled_from([1, 2, 3, 4, 16, 64]))


@given(sharding=SHARDINGS, first=st.integers(0, 600), count=st.integers(0, 600))
def test_every_token_is_kept_once_and_rows_follow_each_other(sharding: Sharding, first: int, count: int) -> None:
    last = first + count
    kept = [sharding.is_kept(first, last, rank) for rank in range(sharding.ranks)]
    assert (np.sum(kept, axis=0) == 1).all()
    positions = np.arange(first, last)
    for rank, mine in enumerate(kept):
        expected = np.arange(sharding.local_len(first, rank), sharding.local_len(last, rank))
        assert sharding.local_rows(positions[mine]).tolist() == expected.tolist()


@given(sharding=SHARDINGS, tokens=st.integers(0, 2000))
def test_the_padded_share_is_that_of_the_fullest_rank_in_whole_runs(sharding: Sharding, tokens: int) -> None:
    shares = [sharding.local_len(tokens, rank) for rank in range(sharding.ranks)]
    assert sum(shares) == tokens
    padded = sharding.padded_rows(tokens)
    assert padded % sharding.interleave == 0
    assert max(shares) <= padded < max(shares) + sharding.interleave


@pytest.mark.vllm
@pytest.mark.parametrize("ranks", [2, 8, 16])
@pytest.mark.parametrize("interleave", [1, 4, 64])
def test_local_lengths_are_vllms(ranks: int, interleave: int) -> None:
    utils = pytest.importorskip("vllm.v1.attention.backends.utils")
    lengths = torch.arange(3 * ranks * interleave)
    expected = utils.get_dcp_local_seq_lens(lengths, ranks, None, interleave).tolist()
    sharding = Sharding(ranks, interleave)
    assert [[sharding.local_len(int(one), rank) for rank in range(ranks)] for one in lengths] == expected


@given(sharding=SHARDINGS, lengths=st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_reorganised_rows_are_in_order_and_nothing_of_the_padding_is_left(
    sharding: Sharding, lengths: list[int]
) -> None:
    """Padding is NaN; so is what lies beside the output."""
    shares = [sharding.padded_rows(length) for length in lengths]
    gathered = torch.full((sharding.ranks, sum(shares), 1), torch.nan)
    for piece, length in enumerate(lengths):
        for position in range(length):
            rank = position // sharding.interleave % sharding.ranks
            row = sum(shares[:piece]) + int(sharding.local_rows(np.array(position)))
            assert gathered[rank, row].isnan().all()
            gathered[rank, row] = piece * 1000 + position
    beside = torch.full((sum(lengths) + 2, 1), torch.nan)
    reorganise(gathered, lengths, sharding, beside[1:-1])
    expected = [piece * 1000 + position for piece, length in enumerate(lengths) for position in range(length)]
    assert beside[1:-1, 0].tolist() == expected
    assert beside[[0, -1]].isnan().all()
