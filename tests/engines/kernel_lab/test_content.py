"""What a prompt is to the lab: the same rows for the same tokens, wherever and whenever."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.content import (
    compressed_hashes,
    picked,
    salt_of,
    seeded_normal,
    token_hashes,
)

TOKENS = st.lists(st.integers(0, 2**31), min_size=1, max_size=50)


@given(TOKENS, st.data())
def test_a_hash_is_of_a_token_and_its_position_alone(tokens: list[int], data: st.DataObject) -> None:
    whole = token_hashes(tokens, 0)
    split = data.draw(st.integers(0, len(tokens)))
    assert np.array_equal(np.concatenate([token_hashes(tokens[:split], 0), token_hashes(tokens[split:], split)]), whole)
    assert whole[0] != token_hashes(tokens[:1], 1)[0]
    assert whole[0] != token_hashes([tokens[0] + 1], 0)[0]


@given(TOKENS, st.integers(1, 8))
def test_a_compressed_hash_is_of_its_group_alone(tokens: list[int], ratio: int) -> None:
    hashes = token_hashes(tokens, 0)
    groups = compressed_hashes(hashes, ratio)
    assert groups.size == len(tokens) // ratio
    for number in range(groups.size):
        own = compressed_hashes(hashes[number * ratio : (number + 1) * ratio], ratio)
        assert own[0] == groups[number]


def test_salts_pick_other_rows_and_all_rows_are_picked() -> None:
    hashes = token_hashes(range(4000), 0)
    first, second = (picked(hashes, salt_of(0, salt), 64, torch.device("cpu")) for salt in (1, 2))
    assert set(first.tolist()) == set(range(64))
    assert float((first == second).float().mean()) < 0.05


def test_seeds_name_numbers() -> None:
    assert torch.equal(seeded_normal(5, 3, 4), seeded_normal(5, 3, 4))
    assert not torch.equal(seeded_normal(5, 3, 4), seeded_normal(6, 3, 4))
    assert salt_of(1, 2, 3) != salt_of(1, 3, 2)
