"""A Gaussian process over mixed knobs: hyperparameters by maximum a posteriori, and a posterior that grows row by row.

The log marginal likelihood and its gradient are equations 5.8 and 5.9 of Rasmussen and Williams (2006), "Gaussian
Processes for Machine Learning"; the constant mean by generalised least squares is their section 2.7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from orchestrator.search.portfolio.features import Floats, Ints, Points
from orchestrator.search.portfolio.kernel import correlation_and_slope, cross_covariance, weight_gradients

LENGTH_SHIFT = 0.5
"""Added to the prior mean of the log length scales, half the logarithm of their number (Hvarfner et al., 2024, "Vanilla
Bayesian optimization performs great in high dimensions", scale them so): knobs matter less unless the data say so."""

_ITERATIONS = 15
_NOISE_FLOOR = 1e-6
_JITTER = 1e-9


@dataclass(frozen=True)
class Hyperparameters:
    """Of a target that has mean 0 and variance 1.

    Attributes:
        ordered: Shape (K,): one over the squared length scale of each ordered term; 0 where there is none.
        nominal: Shape (K,): likewise of the Hamming terms.
        s2: Variance of the process.
        noise: Variance of what no knob explains, beyond what was measured of each trial.
    """

    ordered: Floats
    nominal: Floats
    s2: float
    noise: float


class Prior:
    """Log-normal priors on all hyperparameters, as normal ones on their logarithms."""

    def __init__(self, points: Points) -> None:
        self._ordered = np.flatnonzero(points.is_ordered)
        self._nominal = np.flatnonzero(points.is_nominal)
        self._width = len(points.names)
        scales = len(self._ordered) + len(self._nominal)
        length = 0.5 * math.log(max(scales, 1)) + LENGTH_SHIFT
        self.mean = np.array([length] * scales + [0.0, -6.0])
        self.sd = np.array([1.0] * scales + [1.0, 1.5])

    def unpack(self, theta: Floats) -> Hyperparameters:
        """Hyperparameters of a vector of logarithms: length scales, process variance, noise variance."""
        ordered, nominal = np.zeros(self._width), np.zeros(self._width)
        split = len(self._ordered)
        ordered[self._ordered] = np.exp(-2.0 * theta[:split])
        nominal[self._nominal] = np.exp(-2.0 * theta[split:-2])
        return Hyperparameters(ordered, nominal, math.exp(theta[-2]), math.exp(theta[-1]) + _NOISE_FLOOR)

    def pick(self, ordered: Floats, nominal: Floats) -> Floats:
        """Out of two arrays over the knobs, what the vector holds."""
        return np.concatenate([ordered[self._ordered], nominal[self._nominal]])


def fit(points: Points, rows: Ints, y: Floats, noise: Floats) -> Hyperparameters:
    """Hyperparameters of maximum posterior density, from the prior's mean by L-BFGS-B.

    Args:
        rows: Shape (n,): the measured points.
        y: Shape (n,): their values, standardised.
        noise: Shape (n,): variance of each value, on the same scale; 0 where it is not known.
    """
    prior = Prior(points)
    x, codes = points.coordinates[rows], points.codes[rows]
    bounds = [(mean - 5.0 * sd, mean + 5.0 * sd) for mean, sd in zip(prior.mean, prior.sd, strict=True)]
    found = minimize(
        negative_log_posterior,
        prior.mean,
        args=(prior, x, codes, y, noise),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _ITERATIONS},
    )
    return prior.unpack(found.x)


def negative_log_posterior(
    theta: Floats, prior: Prior, x: Floats, codes: Ints, y: Floats, noise: Floats
) -> tuple[float, Floats]:
    """What ``fit`` minimises, without its constant, and the gradient."""
    hyper, n = prior.unpack(theta), len(y)
    off = (theta - prior.mean) / prior.sd
    penalty, penalty_slope = 0.5 * float(off @ off), off / prior.sd
    correlation, slope = correlation_and_slope(x, codes, hyper.ordered, hyper.nominal)
    covariance = hyper.s2 * correlation
    covariance[np.diag_indices(n)] += hyper.noise + noise
    factor, bad = dpotrf(covariance, lower=1)
    if bad:
        return 1e10 + penalty, penalty_slope
    inverse, _ = dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    ones = inverse.sum(axis=1)
    residual = y - float(ones @ y) / float(ones.sum())
    alpha = inverse @ residual
    value = 0.5 * float(residual @ alpha) + float(np.log(np.diag(factor)).sum()) + penalty
    weights = np.ascontiguousarray(inverse - np.outer(alpha, alpha))
    by_ordered, by_nominal = weight_gradients(weights, slope, x, codes)
    # A weight is l^-2, so d/dlog l = -2 w d/dw.
    by_scale = -hyper.s2 * prior.pick(by_ordered * hyper.ordered, by_nominal * hyper.nominal)
    by_s2 = 0.5 * hyper.s2 * float((weights * correlation).sum())
    by_noise = 0.5 * (hyper.noise - _NOISE_FLOOR) * float(np.trace(weights))
    return value, np.concatenate([by_scale, [by_s2, by_noise]]) + penalty_slope


class Posterior:
    """The process conditioned on measured points, as seen from a fixed list of candidates.

    Another measured point costs O(n * candidates): nothing is computed anew. The same points in the same order and the
    same portions give the same bits, in any process.

    Attributes:
        rows: The measured points, in the order in which they came.
        noise: The variance of each.
    """

    def __init__(self, points: Points, candidates: Ints, hyper: Hyperparameters) -> None:
        self._points, self._hyper = points, hyper
        self._x, self._codes = points.coordinates[candidates], points.codes[candidates]
        self.rows: list[int] = []
        self.noise: list[float] = []
        self._factor = np.zeros((0, 0))
        self._solved = np.zeros((0, len(candidates)))
        self._explained = np.zeros(len(candidates))
        self._marks: list[Floats] = []

    def extend(self, rows: Ints, noise: Floats) -> None:
        """Condition on further measured points; their values come with the question."""
        count, old = len(rows), len(self.rows)
        self._reserve(old + count)
        weights = (self._hyper.ordered, self._hyper.nominal, self._hyper.s2)
        new_x, new_codes = self._points.coordinates[rows], self._points.codes[rows]
        to_candidates = cross_covariance(new_x, new_codes, self._x, self._codes, *weights)
        own = cross_covariance(new_x, new_codes, new_x, new_codes, *weights)
        own[np.diag_indices(count)] += self._hyper.noise + noise + _JITTER * self._hyper.s2
        if old:
            seen_x, seen_codes = self._points.coordinates[self.rows], self._points.codes[self.rows]
            to_seen = cross_covariance(seen_x, seen_codes, new_x, new_codes, *weights)
            lead = solve_triangular(self._factor[:old, :old], to_seen, lower=True, check_finite=False)
            self._factor[old : old + count, :old] = lead.T
            own -= lead.T @ lead
            to_candidates -= lead.T @ self._solved[:old]
        factor = np.linalg.cholesky(own)
        self._factor[old : old + count, old : old + count] = factor
        solved = solve_triangular(factor, to_candidates, lower=True, check_finite=False)
        self._solved[old : old + count] = solved
        self._explained += np.einsum("ij,ij->j", solved, solved)
        self.rows.extend(rows.tolist())
        self.noise.extend(noise.tolist())

    def believe(self, rows: Ints) -> None:
        """Condition on points that are being measured until ``forget``, as if each turned out as is expected of it.

        Source: the Kriging believer of Ginsbourger et al. (2010): the mean stays, the variance shrinks.
        """
        self._marks.append(self._explained.copy())
        self.extend(rows, np.zeros(len(rows)))

    def forget(self, count: int) -> None:
        """Take back the last ``believe``, of ``count`` points."""
        self._explained = self._marks.pop()
        del self.rows[len(self.rows) - count :], self.noise[len(self.noise) - count :]

    def predict(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Mean and standard deviation at the candidates, and the mean at the first len(y) measured points.

        Args:
            y: Values of the measured points, in the order in which they came; points that are believed have none.
        """
        n = len(y)
        factor = self._factor[:n, :n]
        both = solve_triangular(factor, np.stack([y, np.ones(n)], axis=1), lower=True, check_finite=False)
        mean = float(both[:, 1] @ both[:, 0]) / float(both[:, 1] @ both[:, 1])
        residual = both[:, 0] - mean * both[:, 1]
        at_candidates = mean + residual @ self._solved[:n]
        sd = np.sqrt(np.maximum(self._hyper.s2 - self._explained, 1e-12 * self._hyper.s2))
        alpha = solve_triangular(factor, residual, lower=True, trans="T", check_finite=False)
        at_measured = y - (self._hyper.noise + np.array(self.noise[:n])) * alpha
        return at_candidates, sd, at_measured

    def _reserve(self, rows: int) -> None:
        have = len(self._factor)
        if rows <= have:
            return
        room = rows + 40
        factor, solved = np.zeros((room, room)), np.zeros((room, self._solved.shape[1]))
        factor[:have, :have], solved[:have] = self._factor, self._solved
        self._factor, self._solved = factor, solved
