"""Prompts of a fixed length from a seed, and the load under which they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.workloads.tokens import FIRST_ORDINARY_TOKEN


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How many requests one block has, and how long they are, in tokens."""

    prompts: int
    input_len: int
    output_len: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """A closed loop: at most ``concurrency`` requests are in flight; None sends all at once."""

    concurrency: int | None = None


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Token ids, and the number of tokens to generate (the end-of-sequence token does not end it earlier)."""

    token_ids: Sequence[int]
    output_len: int


def make_prompts(workload: Workload, *, seed: Sequence[int], vocab_size: int) -> list[Prompt]:
    """Draw the prompts of one block.

    Args:
        seed: Numbers that name the block; other numbers give other prompts, so that no cache can have seen them.
        vocab_size: Token ids are drawn evenly from 10 to ``vocab_size - 1``.
    """
    if vocab_size <= FIRST_ORDINARY_TOKEN:
        raise ValueError(f"vocab_size must be above {FIRST_ORDINARY_TOKEN}, got {vocab_size}")
    rng = np.random.default_rng(list(seed))
    shape = (workload.prompts, workload.input_len)
    tokens = rng.integers(FIRST_ORDINARY_TOKEN, vocab_size, size=shape).tolist()
    return [Prompt(token_ids=ids, output_len=workload.output_len) for ids in tokens]
