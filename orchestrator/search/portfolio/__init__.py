"""A sampler for few, dear evaluations over a finite list of points, for use in any Optuna study.

    sampler = PortfolioSampler([{"rows": 128, "backend": "a"}, ...], seed=1)
    study = optuna.create_study(sampler=sampler)

Importing it loads Optuna and numba; the first time on a machine, a few seconds go into compiling.
"""

from orchestrator.search.portfolio.costs import GroupCost
from orchestrator.search.portfolio.features import Value
from orchestrator.search.portfolio.sampler import PortfolioSampler
from orchestrator.search.portfolio.trials import (
    ARM_ATTR,
    GAIN_ATTR,
    LOST_ATTR,
    NOISE_ATTR,
    START_SECONDS_ATTR,
    TRIAL_SECONDS_ATTR,
)

__all__ = [
    "ARM_ATTR",
    "GAIN_ATTR",
    "LOST_ATTR",
    "NOISE_ATTR",
    "START_SECONDS_ATTR",
    "TRIAL_SECONDS_ATTR",
    "GroupCost",
    "PortfolioSampler",
    "Value",
]
