"""Which trials deserve a confirmation with fresh prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


def choose_finalists(ratios: Mapping[int, Sequence[float]], directions: Sequence[str], count: int) -> list[int]:
    """Numbers of at most ``count`` trials.

    Of one objective, those of the best ratios, the best first. Of several, those that no other dominates, then those
    that only these dominate, and so on; a set that does not fit any more is thinned out evenly along its first
    objective, and keeps both ends.

    Args:
        ratios: By the number of the trial; one for each objective.
        directions: ``minimize`` or ``maximize``, likewise.
        count: At least 0.
    """
    numbers = np.fromiter(ratios, dtype=np.int64, count=len(ratios))
    values = np.array([*ratios.values()], dtype=np.float64).reshape(-1, len(directions))
    return choose_among(numbers, values, directions, count)


def choose_among(numbers: NDArray[np.int64], ratios: Floats, directions: Sequence[str], count: int) -> list[int]:
    """As ``choose_finalists``.

    Args:
        ratios: One row for each trial and one column for each objective.
    """
    losses = ratios * np.array([-1.0 if way == "maximize" else 1.0 for way in directions])
    order = np.lexsort((numbers, *losses.T[::-1]))
    numbers, losses = numbers[order], losses[order]
    chosen: list[int] = []
    while len(numbers) and len(chosen) < count:
        front = _is_first(losses)
        chosen += _spread(numbers[front].tolist(), count - len(chosen))
        numbers, losses = numbers[~front], losses[~front]
    return chosen


def non_dominated(losses: Mapping[int, Sequence[float]]) -> list[int]:
    """Numbers of those that no other dominates: is at most equal to in every loss and below in one."""
    if not losses:
        return []
    rows = np.array([*losses.values()], dtype=np.float64)
    order = np.lexsort(rows.T[::-1])
    first = np.empty(len(rows), dtype=bool)
    first[order] = _is_first(rows[order])
    return [number for number, is_first in zip(losses, first.tolist(), strict=True) if is_first]


def _is_first(losses: Floats) -> NDArray[np.bool_]:
    """Which rows no other dominates.

    Args:
        losses: One row each, in lexicographic order: what dominates a row stands before it.
    """
    changes = np.ones(len(losses), dtype=bool)
    changes[1:] = (losses[1:] != losses[:-1]).any(axis=1)
    distinct = losses[changes]
    first = np.zeros(len(distinct), dtype=bool)
    if distinct.shape[1] == 2:
        # Every row before is at most equal in the first loss, so the second alone decides.
        first[0] = True
        first[1:] = distinct[1:, 1] < np.minimum.accumulate(distinct[:-1, 1])
    else:
        left = np.arange(len(distinct))
        while left.size:
            first[left[0]] = True
            left = left[(distinct[left] < distinct[left[0]]).any(axis=1)]
    # Equal rows do not dominate each other.
    return np.asarray(first[np.cumsum(changes) - 1], dtype=bool)


def _spread(front: Sequence[int], count: int) -> list[int]:
    if len(front) <= count:
        return list(front)
    if count == 1:
        return [front[0]]
    return [front[round(place * (len(front) - 1) / (count - 1))] for place in range(count)]
