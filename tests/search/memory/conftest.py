"""Earlier runs over the grid of the portfolio's tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from orchestrator.search.memory import EarlierRun
from tests.search.portfolio.conftest import GRID, seconds


def earlier(loss: Callable[[Mapping[str, Any]], float], every: int = 1) -> EarlierRun:
    """A run that measured every n-th point of the grid."""
    points = GRID[::every]
    return EarlierRun("runs/earlier", points, np.array([loss(point) for point in points]))


def alike(point: Mapping[str, Any]) -> float:
    """What this study measures, on another machine."""
    return float(3.0 * np.log(seconds(point)) + 1.0)


def inverted(point: Mapping[str, Any]) -> float:
    return -alike(point)


def decoy(point: Mapping[str, Any]) -> float:
    """Right about the slower two thirds; each of the others is as far above their limit as it should be below."""
    limit = float(np.quantile([alike(one) for one in GRID], 1 / 3))
    return alike(point) if alike(point) > limit else 2.0 * limit - alike(point)
