"""The elementwise part of attention in one pass over the scores: weights, their sums, and what a query does not see.

torch takes four passes for it, one of them through a copy in fp32. Together they cost as much as a third of the
products.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numba import carray  # type: ignore[import-untyped]

from orchestrator.engines.kernel_lab.team import (
    Loop,
    next_share,
    pointer_to_float32,
    pointer_to_int64,
    pointer_to_uint16,
)
from orchestrator.planning.jit import compiled, compiled_callback

_SHARE: Final = 32
"""Rows that a thread takes at a time."""

_FREE_ORDER: Final = frozenset({"reassoc", "contract", "nsz"})
"""What the compiler may assume, so that it adds many weights at a time. NaN and infinity keep their meaning."""

# The series of 2^x about 0: ln(2)^k / k!. For |x| <= 1/2 the first term left out is 4e-5, a fiftieth of what bf16
# rounds.
_C1, _C2 = np.float32(0.69314718), np.float32(0.24022651)
_C3, _C4 = np.float32(0.055504109), np.float32(0.0096181291)


def can_weigh(scores: torch.Tensor) -> bool:
    """Whether these functions take such scores: bf16 on the CPU, contiguous."""
    return bool(scores.device.type == "cpu" and scores.dtype == torch.bfloat16 and scores.is_contiguous())


def weigh(scores: torch.Tensor, sums: torch.Tensor, *, visible: int, diagonal: int | None) -> None:
    """Replace scores by ``2 ** score`` where a query sees the key, else by 0, and add them up.

    A score of 127 and more gives a weight that is above ``2 ** 126``, one of -127 and less gives 0, NaN gives NaN.
    Weights are rounded to bf16, at most one step from the nearest; their sums are those of the rounded weights.

    Args:
        scores: ``bfloat16``, ``[heads, queries, keys]``, contiguous, on the CPU.
        sums: ``float32``, ``[heads, queries]``, contiguous: gets the sums.
        visible: Keys that queries see, the first so many.
        diagonal: If given, query ``i`` sees no key after ``diagonal + i``.
    """
    heads, count, width = scores.shape
    last = width if diagonal is None else diagonal
    _WEIGH.run(scores.data_ptr(), sums.data_ptr(), heads * count, count, width, visible, last)


def largest_of_first(scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The largest of each query's first scores, ``bfloat16``, ``[heads, queries]``.

    Args:
        scores: ``bfloat16``, ``[heads, queries, keys]``, contiguous, on the CPU.
        counts: ``int64``, ``[queries]``: how many of a query's scores are looked at, at least 1.
    """
    heads, count, width = scores.shape
    found = scores.new_empty(heads, count)
    _LARGEST.run(scores.data_ptr(), found.data_ptr(), heads * count, count, width, counts.data_ptr())
    return found


@compiled("float32(uint16[::1], int64)", fastmath=_FREE_ORDER)
def _weigh_row(row: np.ndarray[Any, Any], seen: int) -> Any:
    total = np.float32(0)
    for at in range(seen):
        # bf16 is the upper half of fp32. Integers are cast at each step since numba widens them to 64 bits.
        score = np.uint32(np.uint32(row[at]) << 16).view(np.float32)
        score = np.float32(-127) if score < np.float32(-127) else score
        score = np.float32(127) if score > np.float32(127) else score
        whole = np.rint(score)
        rest = score - whole
        power = (((_C4 * rest + _C3) * rest + _C2) * rest + _C1) * rest + np.float32(1)
        # The exponent of an fp32 number; that of NaN does not matter, since it stays NaN.
        exponent = np.int32(whole) if whole == whole else np.int32(0)
        weight = np.float32(power * np.int32(np.int32(exponent + 127) << 23).view(np.float32))
        bits = weight.view(np.uint32)
        # To the nearest bf16, and to the even one of two.
        half = np.uint32(np.uint32(bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        row[at] = np.uint16(half)
        total += np.uint32(half << 16).view(np.float32)
    return total


@compiled("float32(uint16[::1], int64)", fastmath=_FREE_ORDER)
def _largest_in_row(row: np.ndarray[Any, Any], seen: int) -> Any:
    largest = np.float32(-np.inf)
    for at in range(seen):
        score = np.uint32(np.uint32(row[at]) << 16).view(np.float32)
        largest = score if score > largest else largest
    return largest


@compiled_callback("void(CPointer(int64))")
def _weigh_rows(address: Any) -> None:
    given = carray(address, (8,))
    rows, count, width, visible, diagonal = given[3], given[4], given[5], given[6], given[7]
    sums = carray(pointer_to_float32(given[2]), (rows,))
    while True:
        first = next_share(given[0], _SHARE)
        if first >= rows:
            break
        for number in range(first, min(first + _SHARE, rows)):
            row = carray(pointer_to_uint16(given[1] + 2 * number * width), (width,))
            seen = min(visible, diagonal + number % count + 1)
            sums[number] = _weigh_row(row, seen)
            row[seen:] = 0


@compiled_callback("void(CPointer(int64))")
def _largest_rows(address: Any) -> None:
    given = carray(address, (7,))
    rows, count, width = given[3], given[4], given[5]
    found = carray(pointer_to_uint16(given[2]), (rows,))
    counts = carray(pointer_to_int64(given[6]), (count,))
    while True:
        first = next_share(given[0], _SHARE)
        if first >= rows:
            break
        for number in range(first, min(first + _SHARE, rows)):
            row = carray(pointer_to_uint16(given[1] + 2 * number * width), (width,))
            largest = _largest_in_row(row, counts[number % count])
            found[number] = np.uint16(np.float32(largest).view(np.uint32) >> 16)


_WEIGH: Final = Loop(_weigh_rows)
_LARGEST: Final = Loop(_largest_rows)
