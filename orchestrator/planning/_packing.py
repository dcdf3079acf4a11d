"""The compiled loop of the context planner. Importing this module loads numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning._arrays import LONGEST
from orchestrator.planning.jit import compiled

Ints = NDArray[Any]

_LENGTHS = ("int32[::1]", "int64[::1]")


@compiled(*(f"({a},int64,int64,int64,int64)" for a in _LENGTHS))
def pack_contexts(
    context_lens: Ints, budget: int, step: int, virtual_block: int, local_block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pack contexts in request order into chunks of ``budget`` rows.

    Returns a table with a row per chunk (first request, first piece, pieces, rows, continuation), and a start and a
    length for each piece. A piece of ``t`` tokens takes ``ceil(t / virtual_block) * local_block`` rows. Pieces begin on
    a multiple of ``step``, which is a multiple of ``virtual_block``, so their rows add up without rounding. The caller
    makes sure that one step fits the budget. A length out of range raises a bare ``ValueError``.
    """
    count = context_lens.shape[0]
    step_rows = step // virtual_block * local_block
    total = 0
    for request in range(count):
        if context_lens[request] < 0 or context_lens[request] > LONGEST:
            raise ValueError
        total += int(context_lens[request])
    # A request has a first part beside others, then pieces of a whole budget, then its end: no more than that, and no
    # chunk without a piece. The arrays are written without a check of their bounds.
    largest_piece = budget // step_rows * step
    most = 2 * count + total // largest_piece
    table = np.empty((most, 5), np.int64)
    starts = np.empty(most, np.int64)
    lengths = np.empty(most, np.int64)
    chunks = 0
    pieces = 0
    request = 0
    start = 0
    while request < count:
        if context_lens[request] == 0:
            request += 1
            continue
        first_piece = pieces
        rows = 0
        table[chunks, 0] = request
        table[chunks, 1] = first_piece
        table[chunks, 4] = 1 if start > 0 else 0
        while request < count and context_lens[request] > 0:
            remaining = int(context_lens[request]) - start
            whole_rows = remaining if virtual_block == 1 else -(-remaining // virtual_block) * local_block
            if rows + whole_rows > budget:
                # As many steps as fit. Some of the request stays behind, since all of it does not fit.
                piece = (budget - rows) // step_rows * step
                if piece > 0:
                    starts[pieces] = start
                    lengths[pieces] = piece
                    pieces += 1
                    rows += piece // virtual_block * local_block
                    start += piece
                break
            starts[pieces] = start
            lengths[pieces] = remaining
            pieces += 1
            rows += whole_rows
            request += 1
            start = 0
        table[chunks, 2] = pieces - first_piece
        table[chunks, 3] = rows
        chunks += 1
    return table[:chunks], starts[:pieces], lengths[:pieces]
