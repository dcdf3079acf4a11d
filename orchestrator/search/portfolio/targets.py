"""What a model is fitted to: losses on a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.search.portfolio.features import Floats

Shape = Literal["plain", "bounded"]
"""``plain``: the loss itself. ``bounded``: ``-exp(-(loss - best) / 2)``, which on the log scale is
``-sqrt(best / value)``: differences among bad points shrink, so that a model spends itself on the good ones."""


@dataclass(frozen=True)
class Target:
    """Values of one objective, smaller is better, with mean 0 and variance 1.

    Attributes:
        y: Shape (n,).
        noise: Shape (n,): variance of each, on the same scale.
        centre: What was subtracted.
        spread: What was divided by, after that.
    """

    y: Floats
    noise: Floats
    centre: float
    spread: float


def target(losses: Floats, noise: Floats, *, is_log: bool, shape: Shape) -> Target:
    """Reshape and standardise losses, shape (n,), n at least 1."""
    y, slope = losses, np.ones_like(losses)
    if shape == "bounded":
        unit = 1.0 if is_log else float(losses.std()) or 1.0
        y = -np.exp(-0.5 * (losses - losses.min()) / unit)
        slope = -0.5 * y / unit
    centre, spread = float(y.mean()), float(y.std()) or 1.0
    return Target((y - centre) / spread, noise * (slope / spread) ** 2, centre, spread)
