"""The compiled loop of the greedy planner. Importing this module loads numba, so callers import it on first use.

It exists for ``int32`` and ``int64`` lengths: vLLM keeps lengths in ``int32`` tensors, and a conversion would cost more
than the plan itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning._arrays import LONGEST
from orchestrator.planning.jit import compiled

Ints = NDArray[Any]
Quad = tuple[int, int, int, int]

_LENGTHS = ("int32[::1]", "int64[::1]")


@compiled(*(f"({a},{a},int64,boolean,int64,int64,boolean)" for a in _LENGTHS))
def greedy_tuples(
    seq_lens: Ints, query_lens: Ints, ratio: int, has_compressed: bool, window: int, limit: int, strict: bool
) -> list[Quad]:
    """Greedy chunks in batch order. With ``strict``, lengths that make no request raise a bare ``ValueError``."""
    count = seq_lens.shape[0]
    if query_lens.shape[0] != count or (has_compressed and ratio < 1):
        raise ValueError
    if strict and (window < 1 or limit < 1 or ratio < 0):
        raise ValueError
    # An empty literal has no element type for the compiler; this comprehension has one and makes nothing.
    chunks = [(0, 0, 0, 0) for _ in range(0)]
    most_prefix = window - 1
    start = 0
    while start < count:
        longest = -1
        deep = 0
        wide = 0
        end = start
        while end < count:
            seq = int(seq_lens[end])
            query = int(query_lens[end])
            if strict and (query < 1 or query > seq or seq > LONGEST):
                raise ValueError
            new_longest = max(longest, seq)
            new_wide = query + min(max(seq - query, 0), most_prefix)
            new_deep = deep
            # The longest sequence is the deepest, so one division for each new maximum is enough.
            if has_compressed and new_longest > longest:
                new_deep = new_longest // ratio
            if end > start:
                new_wide = max(new_wide, wide)
                if (end - start + 1) * (new_deep + new_wide) > limit:
                    break
            longest = new_longest
            deep = new_deep
            wide = new_wide
            end += 1
        chunks.append((start, end, deep, deep + wide))
        start = end
    return chunks


@compiled(*(f"({a},{a},int64,boolean,int64,int64)" for a in _LENGTHS))
def greedy_array(
    seq_lens: Ints, query_lens: Ints, ratio: int, has_compressed: bool, window: int, limit: int
) -> NDArray[np.int64]:
    """:func:`greedy_tuples` with ``strict``, as rows of one array: cheaper when there are many chunks."""
    chunks = greedy_tuples(seq_lens, query_lens, ratio, has_compressed, window, limit, True)
    table = np.empty((len(chunks), 4), np.int64)
    for row in range(len(chunks)):
        table[row, 0], table[row, 1], table[row, 2], table[row, 3] = chunks[row]
    return table
