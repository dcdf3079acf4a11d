"""Memory against time: the smallest workspace within a stated loss."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

LOSS = 0.02
"""The share by which the knee may be worse than the best."""


@dataclass(frozen=True)
class Knee:
    """The smallest workspace whose ratio is within ``loss`` of the best.

    Attributes:
        trial: Number of the trial.
        workspace_bytes: Its workspace.
        ratio: Its ratio.
        best_trial: The trial with the best ratio.
        best_bytes: The workspace of that one.
    """

    trial: int
    workspace_bytes: int
    ratio: float
    best_trial: int
    best_bytes: int


def find_knee(trials: pd.DataFrame, *, minimize: bool, loss: float = LOSS) -> Knee | None:
    """The knee of the complete trials; None where none has a known workspace.

    Args:
        trials: Columns ``trial``, ``ratio`` and ``workspace_bytes``.
        loss: 0 or more.
    """
    known = trials[trials["workspace_bytes"].notna() & trials["ratio"].notna()]
    if known.empty:
        return None
    best = known.sort_values("ratio", ascending=minimize, kind="stable").iloc[0]
    bound = best["ratio"] * (1 + loss) if minimize else best["ratio"] / (1 + loss)
    near = known[known["ratio"] <= bound] if minimize else known[known["ratio"] >= bound]
    small = near.sort_values(["workspace_bytes", "ratio"], ascending=[True, minimize]).iloc[0]
    return Knee(
        trial=int(small["trial"]),
        workspace_bytes=int(small["workspace_bytes"]),
        ratio=float(small["ratio"]),
        best_trial=int(best["trial"]),
        best_bytes=int(best["workspace_bytes"]),
    )


def front(trials: pd.DataFrame, *, minimize: bool) -> pd.DataFrame:
    """The trials with a known workspace of which no other is as small and as good, smallest workspace first."""
    known = trials[trials["workspace_bytes"].notna() & trials["ratio"].notna()].copy()
    known["loss"] = known["ratio"] if minimize else -known["ratio"]
    known = known.sort_values(["workspace_bytes", "loss"])
    before = known["loss"].cummin().shift(fill_value=float("inf"))
    return known[known["loss"] < before].drop(columns="loss")
