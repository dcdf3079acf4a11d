"""Random numbers and token ids of a block, all from the seed that names it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

FIRST_ORDINARY_TOKEN = 10
"""Token ids below this are left out: they are the special tokens of most tokenizers."""


class Stream(IntEnum):
    """One generator for each purpose, so that another arrival process leaves the prompts as they are."""

    LENGTHS = 0
    TOKENS = 1
    ARRIVALS = 2
    ORDER = 3
    SHARED = 4


def generator(seed: Sequence[int], stream: Stream, *key: int) -> np.random.Generator:
    """The generator of one purpose in one block. Numbers are 0 or more; ``key`` tells its parts apart."""
    return np.random.default_rng([*seed, int(stream), *key])


def draw_tokens(rng: np.random.Generator, count: int, vocab_size: int) -> list[int]:
    """``count`` ordinary token ids, drawn evenly from 10 to ``vocab_size - 1``.

    Raises:
        ValueError: The vocabulary has no ordinary token.
    """
    if vocab_size <= FIRST_ORDINARY_TOKEN:
        raise ValueError(f"vocab_size must be above {FIRST_ORDINARY_TOKEN}, got {vocab_size}")
    tokens: list[int] = rng.integers(FIRST_ORDINARY_TOKEN, vocab_size, size=count).tolist()
    return tokens
