"""What an earlier run measured, and where its knowledge places the points of another space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from orchestrator.search.portfolio.features import Floats, Points, Value
from orchestrator.search.portfolio.forest import Forest

_FORESTS, _ENOUGH = 4, 500
"""So many forests are averaged, which takes the roughness of few trees off; from so many measured points on, one is
enough."""


@dataclass(frozen=True)
class EarlierRun:
    """Points that an earlier run measured at full fidelity.

    Attributes:
        name: For messages: the folder, or a table's name.
        points: They all have the same knobs.
        losses: Shape (n,), n at least 1: smaller is better, on a log scale. Only their order counts.
    """

    name: str
    points: Sequence[Mapping[str, Value]]
    losses: Floats

    def __post_init__(self) -> None:
        if len(self.points) == 0 or len(self.points) != len(self.losses):
            raise ValueError(f"{self.name}: {len(self.points)} points and {len(self.losses)} losses")
        if not np.isfinite(self.losses).all():
            raise ValueError(f"{self.name}: a loss is not finite")


def shared_knobs(points: Points, run: EarlierRun) -> list[str]:
    """Knobs of the space that the run has too and varied, in the order of the space."""
    varied = {name for name in run.points[0] if len({repr(point[name]) for point in run.points}) > 1}
    return [name for k, name in enumerate(points.names) if name in varied and len(points.levels[k]) > 1]


def standing(points: Points, run: EarlierRun) -> Floats:
    """Shape (N,): how the run would rank each point of the space; smaller is better, with mean 0 and variance 1.

    Values are matched as numbers where a knob has numbers, so that a value that the run did not measure lies between
    its neighbours. Knobs that only one side has are left out: what they did in the run is averaged over.

    Raises:
        ValueError: They share no knob.
    """
    names = shared_knobs(points, run)
    if not names:
        raise ValueError(f"{run.name}: shares no knob with the space ({', '.join(points.names)})")
    wanted = [{name: point[name] for name in names} for point in map(points.point, range(points.size))]
    scores = normal_scores(run.losses)
    # Both sides as one list of distinct points, so that they are encoded on the same scale.
    row_of: dict[tuple[tuple[str, object], ...], int] = {}
    distinct: list[dict[str, Value]] = []

    def row(point: Mapping[str, Value]) -> int:
        key = tuple((_kind(point[name]), point[name]) for name in names)
        if key not in row_of:
            row_of[key] = len(distinct)
            distinct.append({name: point[name] for name in names})
        return row_of[key]

    at = np.array([row(point) for point in wanted], dtype=np.int32)
    measured = np.array([row(point) for point in run.points], dtype=np.int32)
    rows, place = np.unique(measured, return_inverse=True)
    mean = np.bincount(place, weights=scores) / np.bincount(place)
    forest = Forest(Points.of(distinct))
    everything = np.arange(len(distinct), dtype=np.int32)
    forests = _FORESTS if len(rows) < _ENOUGH else 1
    predicted = np.mean(
        [forest.predict(rows.astype(np.int32), mean, everything, seed)[0] for seed in range(forests)], axis=0
    )
    found = predicted[at]
    spread = float(found.std())
    return np.asarray((found - found.mean()) / spread if spread > 0 else np.zeros_like(found))


def normal_scores(losses: Floats) -> Floats:
    """Ranks as quantiles of the normal distribution (Blom's formula): no loss is so large that it hides the others."""
    n = len(losses)
    order = np.argsort(np.argsort(losses, kind="stable"), kind="stable")
    return np.asarray(ndtri((order + 0.625) / (n + 0.25)))


def _kind(value: Value) -> str:
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
