"""Which engine each trial of a study runs on: trials of one group follow each other, so that no engine starts twice."""

from __future__ import annotations

import random

from orchestrator.search.knobs import Point, Space


def group_schedule(space: Space, *, trials: int, seed: int, first: Point) -> list[Point]:
    """Engine-scope values by trial number.

    The trials are shared out evenly over the groups, ``first`` (the baseline's group) leading. With more groups than
    trials, ``first`` and a seeded choice of the others get one trial each.

    Args:
        trials: Number of trials, at least 1.
        first: A group of the space; it is left out when the space does not hold it.
    """
    groups = space.groups()
    rng = random.Random(f"groups/{seed}")
    others = [group for group in groups if group != first]
    if len(groups) > trials:
        others = rng.sample(others, min(trials, len(others)))
    ordered = ([first] if first in groups else []) + others
    ordered = ordered[:trials]
    share, extra = divmod(trials, len(ordered))
    schedule: list[Point] = []
    for index, group in enumerate(ordered):
        schedule.extend([group] * (share + (1 if index < extra else 0)))
    return schedule
