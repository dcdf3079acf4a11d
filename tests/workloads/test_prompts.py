from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.workloads import Workload, make_prompts

workloads = st.builds(Workload, prompts=st.integers(0, 5), input_len=st.integers(1, 200), output_len=st.integers(1, 50))
seeds = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4)


@given(workloads, seeds, st.integers(11, 200_000))
def test_prompts_have_the_asked_shape_and_only_ordinary_tokens(
    workload: Workload, seed: list[int], vocab_size: int
) -> None:
    prompts = make_prompts(workload, seed=seed, vocab_size=vocab_size)
    assert [len(prompt.token_ids) for prompt in prompts] == [workload.input_len] * workload.prompts
    assert all(prompt.output_len == workload.output_len for prompt in prompts)
    tokens = [token for prompt in prompts for token in prompt.token_ids]
    assert all(type(token) is int and 10 <= token < vocab_size for token in tokens)


@given(workloads, seeds)
def test_one_seed_gives_one_block(workload: Workload, seed: list[int]) -> None:
    assert make_prompts(workload, seed=seed, vocab_size=10_240) == make_prompts(workload, seed=seed, vocab_size=10_240)


def test_one_seed_gives_one_block_in_every_process() -> None:
    program = (
        "from orchestrator.workloads import *;"
        "print(make_prompts(Workload(prompts=2, input_len=5, output_len=1), seed=[3, 4], vocab_size=10_240))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = make_prompts(Workload(prompts=2, input_len=5, output_len=1), seed=[3, 4], vocab_size=10_240)
    assert done.stdout.strip() == str(here)


def test_other_seeds_share_no_prefix() -> None:
    """A common first block of 16 tokens could be served from the prefix cache."""
    workload = Workload(prompts=20, input_len=16, output_len=1)
    heads = [
        tuple(prompt.token_ids)
        for seed in ([0], [1], [2**32], [2**32 + 1], [2**63 - 1])
        for prompt in make_prompts(workload, seed=seed, vocab_size=10_240)
    ]
    assert len(set(heads)) == len(heads) == 100


def test_every_ordinary_token_is_drawn() -> None:
    (prompt,) = make_prompts(Workload(prompts=1, input_len=2_000, output_len=1), seed=[0], vocab_size=20)
    assert set(prompt.token_ids) == set(range(10, 20))


@pytest.mark.parametrize("vocab_size", [10, 1, 0, -5])
def test_a_vocabulary_of_special_tokens_only_is_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size must be above 10, got {vocab_size}"):
        make_prompts(Workload(prompts=1, input_len=1, output_len=1), seed=[0], vocab_size=vocab_size)
