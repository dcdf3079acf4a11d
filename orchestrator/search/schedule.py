"""Which engine each trial of a study runs on: trials of one group follow each other, so that no engine starts twice."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from orchestrator.search.knobs import Point


def group_schedule(
    points: Sequence[Point], engine_knobs: Sequence[str], *, trials: int, seed: int, first: Point
) -> list[Point]:
    """Engine-scope values by trial number: as many as there are trials, or points if those are fewer.

    The trials are shared out evenly over the groups, ``first`` (the baseline's group) leading; no group gets more of
    them than it has points. With more groups than trials, ``first`` and a seeded choice of the others get one each.

    Args:
        points: What may be measured, at least one.
        engine_knobs: Points that agree in these share an engine.
        trials: Number of trials, at least 1.
        first: A group; it is left out when no point is in it.
    """
    groups: dict[str, Point] = {}
    sizes: dict[str, int] = {}
    for point in points:
        group = {name: point[name] for name in engine_knobs}
        key = _key(group)
        groups.setdefault(key, group)
        sizes[key] = sizes.get(key, 0) + 1
    others = [key for key in groups if key != _key(first)]
    if len(groups) > trials:
        others = random.Random(f"groups/{seed}").sample(others, min(trials, len(others)))
    ordered = ([_key(first)] if _key(first) in groups else []) + others
    shares = _shares([sizes[key] for key in ordered[:trials]], trials)
    return [groups[key] for key, share in zip(ordered, shares, strict=False) for _ in range(share)]


def _shares(sizes: Sequence[int], trials: int) -> list[int]:
    """Whole numbers up to the sizes, as equal as those allow, the first ones larger, of the sum ``trials`` if it can be
    reached."""
    shares, left = [0] * len(sizes), min(trials, sum(sizes))
    while left:
        open_ = [index for index, size in enumerate(sizes) if shares[index] < size]
        each = max(1, min(left // len(open_), min(sizes[index] - shares[index] for index in open_)))
        for index in open_[:left]:
            shares[index] += each
            left -= each
    return shares


def _key(group: Point) -> str:
    return json.dumps(dict(group), sort_keys=True)
