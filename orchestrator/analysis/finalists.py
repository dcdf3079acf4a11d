"""Which trials deserve a confirmation with fresh prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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
    losses = {
        number: tuple(-value if way == "maximize" else value for value, way in zip(values, directions, strict=True))
        for number, values in ratios.items()
    }
    chosen: list[int] = []
    while losses and len(chosen) < count:
        front = sorted(non_dominated(losses), key=lambda number: (losses[number], number))
        for number in front:
            del losses[number]
        chosen += _spread(front, count - len(chosen))
    return chosen


def non_dominated(losses: Mapping[int, Sequence[float]]) -> list[int]:
    """Numbers of those that no other dominates: is at most equal to in every loss and below in one."""

    def is_dominated(own: Sequence[float]) -> bool:
        return any(
            all(a <= b for a, b in zip(other, own, strict=True)) and tuple(other) != tuple(own)
            for other in losses.values()
        )

    return [number for number, own in losses.items() if not is_dominated(own)]


def _spread(front: Sequence[int], count: int) -> list[int]:
    if len(front) <= count:
        return list(front)
    if count == 1:
        return [front[0]]
    return [front[round(place * (len(front) - 1) / (count - 1))] for place in range(count)]
