"""Extremely randomised trees over mixed knobs, compiled. Importing this module loads numba.

The trees are those of Geurts, Ernst and Wehenkel (2006): each sees all rows; at a node, one random cut is drawn in each
of some random columns, and the one that lowers the squared error most is taken. A column is an ordered knob (cut by a
threshold), a knob's value (is it this one?), or the sum or difference of two ordered knobs on their log scales, which
is the product or ratio of the two.

scikit-learn's forest needs about 50 ms to fit 60 trees to 80 rows and score 4,000; this one has to stay under 5.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning.jit import compiled
from orchestrator.search.portfolio.features import Floats, Ints, Points

Columns = NDArray[np.float32]

TREES = 28
TRIES = 8
"""Cuts that are drawn at a node among the columns of single knobs."""
PAIRED_TRIES = 4
"""Likewise among the columns of two knobs."""


@compiled("(float32[:,::1],float64[::1],int64,int64,int64,int64,int64)")
def grow(
    x: Columns, y: Floats, trees: int, single: int, tries: int, paired: int, seed: int
) -> tuple[Ints, Columns, Ints, Floats, NDArray[np.int64]]:
    """Grow trees: split column, cut, left child (the right one follows it) and mean, shape (trees, nodes), and depth.

    A leaf is its own left child and cuts at infinity, so that a row that has arrived stays.

    Args:
        x: Shape (columns, n), n at least 1; the first ``single`` columns are knobs and values, the others pairs.
        tries: Cuts that are drawn at a node among the columns of single knobs, at least 1.
        paired: Likewise among the pairs; 0 without pairs.
        seed: The trees depend on nothing else.
    """
    np.random.seed(seed)
    columns, n = x.shape
    nodes = 2 * n - 1
    split = np.zeros((trees, nodes), dtype=np.int32)
    cut = np.full((trees, nodes), np.inf, dtype=np.float32)
    left = np.zeros((trees, nodes), dtype=np.int32)
    depth = np.zeros(trees, dtype=np.int64)
    level = np.zeros(nodes, dtype=np.int64)
    mean = np.zeros((trees, nodes))
    order = np.empty(n, dtype=np.int64)
    begin, end = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    pick = np.empty(columns, dtype=np.int64)
    for tree in range(trees):
        for i in range(n):
            order[i] = i
        begin[0], end[0], level[0] = 0, n, 0
        used = 1
        node = 0
        while node < used:
            a, b = begin[node], end[node]
            total = 0.0
            for i in range(a, b):
                total += y[order[i]]
            mean[tree, node], left[tree, node] = total / (b - a), node
            depth[tree] = max(depth[tree], level[node])
            best_gain, best_column, best_cut = -1.0, -1, np.float32(0.0)
            if b - a > 1:
                for i in range(columns):
                    pick[i] = i
                left_single, left_paired = single, columns - single
                got_single, got_paired = 0, 0
                # Columns are drawn without replacement; one that is constant here does not count as a try. Two rows are
                # parted equally well by any column.
                while (got_single < tries and left_single > 0) or (got_paired < paired and left_paired > 0):
                    if b - a == 2 and best_column >= 0:
                        break
                    if got_single < tries and left_single > 0:
                        at = np.random.randint(0, left_single)
                        column = pick[at]
                        left_single -= 1
                        pick[at] = pick[left_single]
                        is_paired = False
                    else:
                        at = np.random.randint(0, left_paired)
                        column = pick[single + at]
                        left_paired -= 1
                        pick[single + at] = pick[single + left_paired]
                        is_paired = True
                    low = high = x[column, order[a]]
                    for i in range(a + 1, b):
                        value = x[column, order[i]]
                        low = min(low, value)
                        high = max(high, value)
                    if not low < high:
                        continue
                    if is_paired:
                        got_paired += 1
                    else:
                        got_single += 1
                    threshold = np.float32(low + np.random.random() * (high - low))
                    if threshold >= high:
                        threshold = low
                    below, below_sum = 0, 0.0
                    for i in range(a, b):
                        if x[column, order[i]] <= threshold:
                            below += 1
                            below_sum += y[order[i]]
                    above = (b - a) - below
                    gap = below_sum / below - (total - below_sum) / above
                    gain = gap * gap * below * above
                    if gain > best_gain:
                        best_gain, best_column, best_cut = gain, column, threshold
            if best_column >= 0:
                i, j = a, b - 1
                while i <= j:
                    if x[best_column, order[i]] <= best_cut:
                        i += 1
                    else:
                        order[i], order[j] = order[j], order[i]
                        j -= 1
                split[tree, node], cut[tree, node], left[tree, node] = best_column, best_cut, used
                begin[used], end[used] = a, i
                begin[used + 1], end[used + 1] = i, b
                level[used] = level[used + 1] = level[node] + 1
                used += 2
            node += 1
    return split, cut, left, mean, depth


_ABREAST = 8
"""Rows that walk down a tree together: each waits for memory, not for the others."""


@compiled("(float32[:,::1],int32[:,::1],float32[:,::1],int32[:,::1],float64[:,::1],int64[::1])")
def evaluate(
    x: Columns, split: Ints, cut: Columns, left: Ints, mean: Floats, depth: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Mean of the trees at each row of ``x`` (shape (rows, columns)) and their standard deviation.

    The other arguments are what ``grow`` returns.
    """
    rows, trees = x.shape[0], split.shape[0]
    total, squares = np.zeros(rows), np.zeros(rows)
    node = np.zeros(_ABREAST, dtype=np.int32)
    for tree in range(trees):
        for first in range(0, rows, _ABREAST):
            count = min(_ABREAST, rows - first)
            node[:] = 0
            for _ in range(depth[tree]):
                for i in range(count):
                    at = node[i]
                    node[i] = left[tree, at] + (x[first + i, split[tree, at]] > cut[tree, at])
            for i in range(count):
                value = mean[tree, node[i]]
                total[first + i] += value
                squares[first + i] += value * value
    for row in range(rows):
        total[row] /= trees
        squares[row] = np.sqrt(max(squares[row] / trees - total[row] * total[row], 0.0))
    return total, squares


class Forest:
    """A regression forest over points."""

    def __init__(self, points: Points) -> None:
        single, paired = _columns(points)
        self._single, self._paired = len(single), len(paired)
        columns = np.array([*single, *paired], dtype=np.float32).reshape(-1, points.size)
        self._by_column = np.ascontiguousarray(columns)
        self._by_row = np.ascontiguousarray(columns.T)

    def predict(self, rows: Ints, y: Floats, candidates: Ints, seed: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation between trees at candidates, of trees grown on measured points.

        Args:
            rows: Shape (n,): the measured points; n at least 1.
            y: Shape (n,): their values.
            seed: In [0, 2**32); the trees depend on nothing else.
        """
        x = np.ascontiguousarray(self._by_column[:, rows])
        trees = grow(x, y, TREES, self._single, min(TRIES, self._single), min(PAIRED_TRIES, self._paired), seed)
        whole = len(candidates) == len(self._by_row)
        return evaluate(self._by_row if whole else self._by_row[candidates], *trees)


def _columns(points: Points) -> tuple[list[Floats], list[Floats]]:
    """What the trees cut, N numbers a column: of single knobs, and of two.

    A knob's value becomes a column of zeros and ones; a knob with two values has only one such column.
    """
    ordered = np.flatnonzero(points.is_ordered)
    single: list[Floats] = [points.coordinates[:, k] for k in ordered]
    for k in np.flatnonzero(points.is_nominal):
        count = len(points.levels[k])
        single += [(points.codes[:, k] == level).astype(float) for level in range(1 if count == 2 else 0, count)]
    scaled = points.coordinates * points.spans
    paired: list[Floats] = []
    for a, b in itertools.combinations(ordered, 2):
        paired += [scaled[:, a] + scaled[:, b], scaled[:, a] - scaled[:, b]]
    return single, paired
