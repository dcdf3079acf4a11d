"""Batches of four characters, for the benchmarks of the planners and of the kernel lab: lengths of prefills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LENGTH: Final = 131_072
"""Tokens of the longest request."""

STEP_TOKENS: Final = 8_192
"""Tokens of a step at most."""

Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Prefill:
    """One request of a step.

    Attributes:
        seq_len: Tokens with those of the step.
        query_len: Tokens of the step, at least 1.
    """

    seq_len: int
    query_len: int


def mix_lengths(batches: int, *, seed: int = 2) -> dict[str, list[tuple[Lengths, Lengths]]]:
    """Lengths and new tokens of generated batches, by the name of their mix; a batch may exceed the tokens of a step.

    The trace has lengths of a long tail, as chat has.

    Args:
        batches: Of each mix, at least 1.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[tuple[Lengths, Lengths]]] = {
        name: [] for name in ("uniform short", "one huge", "bimodal", "trace-like")
    }
    for _ in range(batches):
        short = rng.integers(64, 1024, 48)
        found["uniform short"].append((short, short))
        small = rng.integers(256, 2048, 32)
        small[rng.integers(32)] = LENGTH
        found["one huge"].append((small, np.minimum(small, 256)))
        two = np.where(rng.random(24) < 0.5, rng.integers(500, 2000, 24), rng.integers(60_000, LENGTH, 24))
        found["bimodal"].append((two, np.minimum(two, 340)))
        tail = np.clip(rng.lognormal(7.5, 1.6, 40), 16, LENGTH).astype(np.int64)
        found["trace-like"].append((tail, np.minimum(tail, rng.integers(16, 512, 40))))
    return found


def mixes(batches: int, *, seed: int = 2, shrink: int = 1) -> dict[str, list[list[Prefill]]]:
    """The batches of :func:`mix_lengths`, each ended where its queries would exceed the tokens of a step, as a
    scheduler would end it.

    Args:
        batches: Of each mix, at least 1.
        shrink: Every length and the tokens of a step are divided by it.
    """
    return {
        name: [_step(*lengths, shrink) for lengths in drawn] for name, drawn in mix_lengths(batches, seed=seed).items()
    }


def _step(seq_lens: Lengths, query_lens: Lengths, shrink: int) -> list[Prefill]:
    members: list[Prefill] = []
    room = STEP_TOKENS // shrink
    for seq_len, query_len in zip(seq_lens.tolist(), query_lens.tolist(), strict=True):
        member = Prefill(-(-seq_len // shrink), -(-query_len // shrink))
        if member.query_len > room:
            break
        members.append(member)
        room -= member.query_len
    return members
