"""Argument checks shared by the planning functions: one ``ValueError`` line that names the argument and the rule."""

from __future__ import annotations

import operator
from typing import SupportsIndex


def whole(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """Return ``value`` as an ``int`` of at least ``least``.

    Raises:
        ValueError: if ``value`` is not a whole number, is a bool, or is below ``least``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def context_parallel(block_size: SupportsIndex, dcp: SupportsIndex, interleave: SupportsIndex) -> tuple[int, int, int]:
    """Check the three sizes that decode context parallelism ties together.

    vLLM looks at the interleave only when decode context parallelism is on, so ``dcp=1`` accepts any positive one.

    Raises:
        ValueError: if a size is below 1, or if ``dcp`` is above 1 and ``interleave`` does not divide ``block_size``.
    """
    block = whole("block_size", block_size)
    ranks = whole("dcp", dcp)
    run = whole("interleave", interleave)
    if ranks > 1 and block % run:
        raise ValueError(f"interleave must divide block_size when dcp > 1, got interleave={run}, block_size={block}")
    return block, ranks, run
