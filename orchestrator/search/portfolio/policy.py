"""Whose turn it is: every arm keeps a share, the rest goes to those that improved the best lately."""

from __future__ import annotations

import numpy as np

from orchestrator.search.portfolio.features import Floats, Mask
from orchestrator.search.portfolio.history import History

FLOOR = 0.12
"""The least share of an arm, for up to eight arms."""
_GAIN = 2.0
"""What an improvement counts, against the 1 that every arm has from the start."""
_DECAY = 0.95
"""An improvement of the last trial but n counts ``0.95**n``."""
_LEAST = 0.02
"""An improvement is one from this share of the values' standard deviation on."""


def shares(history: History, arms: int) -> Floats:
    """Probability of each arm's turn; they add up to 1."""
    credit = np.ones(arms)
    improved = improvements(history)
    for age, index in enumerate(range(len(history.tried) - 1, -1, -1)):
        weight = _GAIN * _DECAY**age
        if weight < 1e-3:
            break
        arm = int(history.arms[index])
        if improved[index] and 0 <= arm < arms:
            credit[arm] += weight
    floor = min(FLOOR, 1.0 / arms)
    return np.asarray(floor + (1.0 - arms * floor) * credit / credit.sum())


def improvements(history: History) -> Mask:
    """Shape (t,): which trials were better than all before them; of several objectives, than all in one of them."""
    out = np.zeros(len(history.tried), dtype=bool)
    losses = history.losses
    if len(losses) < 2:
        return out
    least = _LEAST * losses.std(axis=0)
    before = np.minimum.accumulate(losses, axis=0)[:-1]
    better = np.concatenate([[False], (losses[1:] < before - least).any(axis=1)])
    out[~history.has_failed] = better
    return out
