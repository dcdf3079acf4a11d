"""How much a point promises: the logarithm of the expected improvement, of one value or of a hypervolume."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, ndtr

from orchestrator.search.portfolio.features import Floats

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_DIRECTIONS = 8
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
_MARGIN = 0.1
"""The reference point lies this share of the front's range beyond its worst values."""


def log_expected_improvement(mean: Floats, sd: Floats, best: float) -> Floats:
    """``log E[max(best - Y, 0)]`` for normal Y.

    Source: Ament et al. (2023), "Unexpected improvements to expected improvement", equation 9: far from the best,
    where the plain formula is zero, this one still ranks.
    """
    sd = np.maximum(sd, 1e-12)
    z = (best - mean) / sd
    out = np.empty_like(z)
    near = z > -1.0
    zn, zf = z[near], -z[~near]
    out[near] = np.log(np.exp(-0.5 * zn * zn - _LOG_SQRT_2PI) + zn * ndtr(zn))
    # phi(z) + z Phi(z) = phi(z) (1 - |z| Mills ratio); from 1e4 on the bracket is 1 / z^2.
    bracket = np.where(zf < 1e4, 1.0 - _SQRT_HALF_PI * zf * erfcx(zf / math.sqrt(2.0)), 1.0 / np.maximum(zf, 1.0) ** 2)
    out[~near] = -0.5 * zf * zf - _LOG_SQRT_2PI + np.log(np.maximum(bracket, 1e-300))
    return np.asarray(out + np.log(sd))


def log_expected_hypervolume(mean: Floats, sd: Floats, front: Floats, rng: np.random.Generator) -> Floats:
    """Logarithm of the expected gain in dominated hypervolume, up to a constant, by random directions.

    The hypervolume that losses y dominate is proportional to the mean, over directions w, of
    ``max_y min_i max(ref_i - y_i, 0)^m / w_i^m`` (Zhang and Golovin, 2020, "Random hypervolume scalarizations for
    provable multi-objective black box optimization", lemma 5). For independent normal objectives the expected gain of
    one direction is an integral over a line, which is taken by Gauss-Legendre.

    Args:
        mean: Shape (objectives, candidates), smaller is better.
        sd: Likewise.
        front: Shape (points, objectives): the values so far that no other dominates.
    """
    objectives = len(mean)
    worst, ideal = front.max(axis=0), np.minimum(front.min(axis=0), (mean - 3.0 * sd).min(axis=1))
    reference = worst + _MARGIN * np.maximum(worst - ideal, 1e-9)
    directions = np.abs(rng.standard_normal((_DIRECTIONS, objectives))) + 1e-3
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sd = np.maximum(sd, 1e-12)
    gain = np.zeros(mean.shape[1])
    for w in directions:
        reached = float(((reference - front) / w).min(axis=1).max())
        most = float(((reference - ideal) / w).min())
        if most <= reached:
            continue
        half = 0.5 * (most - reached)
        for node, weight in zip(reached + half * (_NODES + 1.0), half * _NODE_WEIGHTS, strict=True):
            at_least = ndtr(((reference - node * w)[:, None] - mean) / sd).prod(axis=0)
            gain += weight * objectives * node ** (objectives - 1) * at_least
    return np.asarray(np.log(np.maximum(gain, 1e-300)))
