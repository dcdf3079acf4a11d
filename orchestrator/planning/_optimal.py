"""The compiled searches behind the ``"optimal"`` order. Importing this module loads numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning.jit import compiled


@compiled("(int64[::1],int64[::1],int64,int64)")
def best_split(
    compressed: NDArray[np.int64], gather: NDArray[np.int64], limit: int, launch: int
) -> tuple[int, NDArray[np.int64]]:
    """Cheapest cut of an order into runs: the cost, and the start of the run that ends at each place.

    A run costs ``launch + count * width``; one longer than a single request must stay within ``limit``. Width only
    grows as a run is extended, so the scan ends at the first run that is too large.
    """
    count = compressed.shape[0]
    cost = np.zeros(count + 1, np.int64)
    opened = np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        deep = 0
        wide = 0
        cost[end] = -1
        for start in range(end - 1, -1, -1):
            deep = max(deep, int(compressed[start]))
            wide = max(wide, int(gather[start]))
            area = (end - start) * (deep + wide)
            if end - start > 1 and area > limit:
                break
            total = cost[start] + launch + area
            # On a tie the longer run wins: fewer chunks for the same cost.
            if cost[end] < 0 or total <= cost[end]:
                cost[end] = total
                opened[end] = start
    return int(cost[count]), opened


@compiled("(int64[::1],int64[::1],int64,int64)")
def best_partition(
    compressed: NDArray[np.int64], gather: NDArray[np.int64], limit: int, launch: int
) -> tuple[int, NDArray[np.int64]]:
    """Cheapest grouping of about a dozen requests, over every set partition: the cost, and a group for each."""
    count = compressed.shape[0]
    full = 1 << count
    deep = np.zeros(full, np.int64)
    wide = np.zeros(full, np.int64)
    size = np.zeros(full, np.int64)
    cost = np.zeros(full, np.int64)
    chosen = np.zeros(full, np.int64)
    for members in range(1, full):
        top = 0
        while members >> (top + 1):
            top += 1
        rest = members ^ (1 << top)
        deep[members] = max(deep[rest], compressed[top])
        wide[members] = max(wide[rest], gather[top])
        size[members] = size[rest] + 1
        best = -1
        # Each partition is met once: the group that is split off always holds the highest request of the set.
        others = rest
        while True:
            group = others | (1 << top)
            area = size[group] * (deep[group] + wide[group])
            if size[group] == 1 or area <= limit:
                total = cost[members ^ group] + launch + area
                if best < 0 or total < best:
                    best = total
                    chosen[members] = group
            if others == 0:
                break
            others = (others - 1) & rest
        cost[members] = best
    owner = np.zeros(count, np.int64)
    members = full - 1
    number = 0
    while members:
        group = int(chosen[members])
        for request in range(count):
            if group >> request & 1:
                owner[request] = number
        number += 1
        members ^= group
    return int(cost[full - 1]), owner
