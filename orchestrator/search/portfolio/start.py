"""The first trials: every level of every knob about equally often, and no two points alike."""

from __future__ import annotations

import numpy as np

from orchestrator.search.portfolio.features import Floats, Ints, Points

_REACH = 0.125
"""Width, in levels over the number of levels, within which two values of an ordered knob count as one (normal)."""
_DISTANCE = 0.3
"""Weight of the distance to the nearest earlier point, in times a level was used."""


def start_score(points: Points, asked: Ints, candidates: Ints) -> Floats:
    """How much candidates add to the points that were asked for; one unit is one use of a level."""
    score = np.zeros(len(candidates))
    if len(asked) == 0:
        return score
    nearest = np.full(len(candidates), np.inf)
    for row in asked:
        gap = (points.coordinates[candidates] - points.coordinates[row]) ** 2 * points.is_ordered
        differs = (points.codes[candidates] != points.codes[row]) & points.is_nominal
        nearest = np.minimum(nearest, gap.sum(axis=1) + differs.sum(axis=1))
    for k in range(len(points.names)):
        levels = len(points.levels[k])
        used = np.bincount(points.codes[asked, k], minlength=levels).astype(float)
        if points.is_ordered[k]:
            gaps = np.arange(levels)[:, None] - np.arange(levels)[None, :]
            used = np.exp(-0.5 * (gaps / max(_REACH * levels, 0.5)) ** 2) @ used
        score -= used[points.codes[candidates, k]]
    return np.asarray(score + _DISTANCE * np.sqrt(nearest))
