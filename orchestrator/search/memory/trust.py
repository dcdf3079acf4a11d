"""How far an earlier run is to be trusted: by whether it ranks what was measured here."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from orchestrator.search.portfolio.features import Floats

_PRIOR_MEAN, _PRIOR_SD = 0.2, 0.3
"""What is expected of Kendall's tau before anything was measured."""
_USEFUL = 0.15
"""A run is of use from this tau on."""


def kendall(one: Floats, other: Floats) -> float:
    """Kendall's tau-a of two rankings: concordant less discordant pairs, over all pairs; 0 below two values."""
    n = len(one)
    if n < 2:
        return 0.0
    signs = np.sign(one[:, None] - one[None, :]) * np.sign(other[:, None] - other[None, :])
    return float(signs.sum() / (n * (n - 1)))


def trust(standing: Floats, losses: Floats) -> float:
    """Probability that the run ranks this study's points better than chance by a margin.

    Tau counts the pairs that the run ranks wrongly: the ranking loss by which Feurer, Letham and Bakshy (2018),
    "Scalable meta-learning for Bayesian optimization using ranking-weighted Gaussian process ensembles", weigh earlier
    studies. Here it updates a normal prior, with the variance that it has when there is no relation (Kendall, 1938).

    Args:
        standing: Shape (n,): places of the measured points by the run.
        losses: Shape (n,): what was measured.
    """
    n = len(losses)
    precision, weighted = _PRIOR_SD**-2, _PRIOR_MEAN * _PRIOR_SD**-2
    if n >= 2:
        of_data = 9.0 * n * (n - 1) / (2.0 * (2 * n + 5))
        precision, weighted = precision + of_data, weighted + of_data * kendall(standing, losses)
    return float(ndtr((weighted / precision - _USEFUL) * math.sqrt(precision)))
