from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.workloads import Request, random_requests

counts, inputs, outputs = st.integers(1, 5), st.integers(1, 200), st.integers(1, 50)
seeds = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4)


def draw(seed: list[int], count: int = 2, input_len: int = 5, vocab_size: int = 10_240) -> list[Request]:
    return random_requests(count, input_len=input_len, output_len=1, seed=seed, vocab_size=vocab_size)


@given(counts, inputs, outputs, seeds, st.integers(11, 200_000))
def test_requests_have_the_asked_shape_and_only_ordinary_tokens(
    count: int, input_len: int, output_len: int, seed: list[int], vocab_size: int
) -> None:
    requests = random_requests(count, input_len=input_len, output_len=output_len, seed=seed, vocab_size=vocab_size)
    assert [len(request.prompt.token_ids) for request in requests] == [input_len] * count
    assert all(request.prompt.output_len == output_len for request in requests)
    tokens = [token for request in requests for token in request.prompt.token_ids]
    assert all(type(token) is int and 10 <= token < vocab_size for token in tokens)


@given(seeds)
def test_one_seed_gives_one_block(seed: list[int]) -> None:
    assert draw(seed) == draw(seed)


def test_one_seed_gives_one_block_in_every_process() -> None:
    program = (
        "from orchestrator.workloads import *;"
        "print(random_requests(2, input_len=5, output_len=1, seed=[3, 4], vocab_size=10_240))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(draw([3, 4]))


def test_other_seeds_share_no_prefix() -> None:
    """A common first block of 16 tokens could be served from the prefix cache."""
    heads = [
        tuple(request.prompt.token_ids)
        for seed in ([0], [1], [2**32], [2**32 + 1], [2**63 - 1])
        for request in draw(seed, count=20, input_len=16)
    ]
    assert len(set(heads)) == len(heads) == 100


def test_every_ordinary_token_is_drawn() -> None:
    (request,) = draw([0], count=1, input_len=2_000, vocab_size=20)
    assert set(request.prompt.token_ids) == set(range(10, 20))


@pytest.mark.parametrize("vocab_size", [10, 1, 0, -5])
def test_a_vocabulary_of_special_tokens_only_is_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size must be above 10, got {vocab_size}"):
        draw([0], vocab_size=vocab_size)
