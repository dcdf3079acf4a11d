"""Batches of four characters, for the benchmarks of the kernel lab: lengths of one step's prefills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LENGTH: Final = 131_072
"""Tokens of the longest request."""

STEP_TOKENS: Final = 8_192
"""Tokens of a step at most."""


@dataclass(frozen=True)
class Prefill:
    """One request of a step.

    Attributes:
        seq_len: Tokens with those of the step.
        query_len: Tokens of the step, at least 1.
    """

    seq_len: int
    query_len: int


Mix = Sequence[Sequence[Prefill]]


def mixes(batches: int, *, seed: int = 2, shrink: int = 1) -> dict[str, list[list[Prefill]]]:
    """Generated batches by the name of their mix. The trace has lengths of a long tail, as chat has.

    The mixes are those of ``benchmarks/planner.py``. A batch ends where its queries would exceed the tokens of a step,
    as a scheduler would end it.

    Args:
        batches: Of each mix, at least 1.
        shrink: Every length and the tokens of a step are divided by it.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[list[Prefill]]] = {"uniform short": [], "one huge": [], "bimodal": [], "trace-like": []}
    for _ in range(batches):
        short = rng.integers(64, 1024, 48)
        found["uniform short"].append(_step(short, short, shrink))
        small = rng.integers(256, 2048, 32)
        small[rng.integers(32)] = LENGTH
        found["one huge"].append(_step(small, np.minimum(small, 256), shrink))
        two = np.where(rng.random(24) < 0.5, rng.integers(500, 2000, 24), rng.integers(60_000, LENGTH, 24))
        found["bimodal"].append(_step(two, np.minimum(two, 340), shrink))
        tail = np.clip(rng.lognormal(7.5, 1.6, 40), 16, LENGTH).astype(np.int64)
        found["trace-like"].append(_step(tail, np.minimum(tail, rng.integers(16, 512, 40)), shrink))
    return found


def _step(seq_lens: NDArray[np.int64], query_lens: NDArray[np.int64], shrink: int) -> list[Prefill]:
    members: list[Prefill] = []
    room = STEP_TOKENS // shrink
    for seq_len, query_len in zip(seq_lens.tolist(), query_lens.tolist(), strict=True):
        member = Prefill(-(-seq_len // shrink), -(-query_len // shrink))
        if member.query_len > room:
            break
        members.append(member)
        room -= member.query_len
    return members
