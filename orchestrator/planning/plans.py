"""Chunk plans as values, and the search for the cheapest one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

#: Rows that one more chunk is taken to cost. A chunk of a compressed layer is four launches, in all some 16 us; at one
#: row a nanosecond (1 KiB rows, 1 TB/s) that is about 16 thousand rows. An assumption: put your own measurement here.
LAUNCH_ROWS: Final = 16_384

_EXHAUSTIVE_UP_TO: Final = 10


class Chunk(NamedTuple):
    """Requests that share one gather workspace.

    Equal to vLLM's tuple of the same four numbers.

    Attributes:
        start: First request.
        end: One past the last request.
        compressed: Compressed rows that each of them gets: the most that any needs. vLLM's ``N``.
        width: Rows that each of them gets, with those of the window. vLLM's ``M``.
    """

    start: int
    end: int
    compressed: int
    width: int

    @property
    def requests(self) -> int:
        """Requests in the chunk."""
        return self.end - self.start

    @property
    def area(self) -> int:
        """Workspace rows that the chunk spans."""
        return (self.end - self.start) * self.width


class ChunkPlan(list[Chunk]):
    """A list of chunks, with what is needed to judge and to run it.

    Attributes:
        area_limit: Rows that a chunk of several requests stays within.
    """

    __slots__ = ("_exact", "_permutation", "area_limit")

    area_limit: int
    # A plan in batch order is made in a microsecond: it leaves these two unset.
    _permutation: NDArray[np.int64] | None
    _exact: bool

    @classmethod
    def of(
        cls,
        chunks: Iterable[tuple[int, int, int, int]],
        area_limit: int,
        permutation: NDArray[np.int64] | None = None,
        *,
        exact: bool = False,
    ) -> Self:
        """Make a plan of plain tuples."""
        plan = cls(Chunk(*chunk) for chunk in chunks)
        plan.area_limit = area_limit
        plan._permutation = permutation
        plan._exact = exact
        return plan

    @property
    def permutation(self) -> NDArray[np.int64] | None:
        """``permutation[i]`` is the request of the batch at place ``i`` of the plan; ``None``: as in the batch."""
        return getattr(self, "_permutation", None)

    @property
    def exact(self) -> bool:
        """Whether no grouping of these requests, in any order, costs less. Only ``"optimal"`` can say so."""
        return getattr(self, "_exact", False)

    @property
    def area(self) -> int:
        """Workspace rows that all chunks span together."""
        return sum(chunk.area for chunk in self)

    @property
    def oversize(self) -> list[int]:
        """Places in the plan of the chunks beyond the limit: requests too wide to share, each alone."""
        return [place for place, chunk in enumerate(self) if chunk.area > self.area_limit]

    def cost(self, launch_rows: int = LAUNCH_ROWS) -> int:
        """``launch_rows`` for each chunk plus the area, in rows."""
        return launch_rows * len(self) + self.area


def optimal(
    compressed: NDArray[np.int64], gather: NDArray[np.int64], *, area_limit: int, launch_rows: int = LAUNCH_ROWS
) -> ChunkPlan:
    """The cheapest plan found over the orders and groupings of the requests.

    Exact when one order sorts both extents (always so without compressed rows), because moving the larger requests
    together then never widens a chunk; and up to ten requests, by trying every grouping. Beyond that it is the best cut
    of four orders: by width, by compressed rows, by window rows, and the batch order, so never worse than greedy.

    Args:
        compressed: Compressed rows of each request, shape ``[requests]``.
        gather: Window rows of each request, shape ``[requests]``.
        area_limit: Rows, at least 1.
        launch_rows: What one more chunk costs, in rows; at least 0.
    """
    from orchestrator.planning._optimal import best_partition, best_split

    count = compressed.size
    chained = np.lexsort((gather, compressed))
    exact = bool((np.diff(gather[chained]) >= 0).all())
    if not exact and count <= _EXHAUSTIVE_UP_TO:
        _, owner = best_partition(compressed, gather, area_limit, launch_rows)
        order = np.argsort(owner, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(owner[order])) + 1).tolist(), count]
        return ChunkPlan.of(_measured(compressed[order], gather[order], edges), area_limit, order, exact=True)
    orders = [chained]
    if not exact:
        by_width = np.lexsort((compressed, compressed + gather))
        orders += [by_width, np.lexsort((compressed, gather)), np.arange(count)]
    cuts = [(*best_split(compressed[order], gather[order], area_limit, launch_rows), order) for order in orders]
    _, opened, order = min(cuts, key=lambda cut: cut[0])
    edges = [count]
    while edges[-1] > 0:
        edges.append(int(opened[edges[-1]]))
    chunks = _measured(compressed[order], gather[order], edges[::-1])
    return ChunkPlan.of(chunks, area_limit, order, exact=exact)


def _measured(
    compressed: NDArray[np.int64], gather: NDArray[np.int64], edges: list[int]
) -> list[tuple[int, int, int, int]]:
    chunks = []
    for start, end in pairwise(edges):
        if end > start:
            deep = int(compressed[start:end].max())
            chunks.append((start, end, deep, deep + int(gather[start:end].max())))
    return chunks
