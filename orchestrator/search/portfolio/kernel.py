"""The compiled loops of the Gaussian process's covariance. Importing this module loads numba.

``k(x, z) = s2 * Matern52(r)`` with ``r^2 = sum_k w_k (x_k - z_k)^2 + v_k [x_k != z_k]``: per knob an ordered term and a
Hamming term, each with a weight of its own (one over a squared length scale).
"""

from __future__ import annotations

import math

import numpy as np

from orchestrator.planning.jit import compiled
from orchestrator.search.portfolio.features import Floats, Ints

_SQRT5 = math.sqrt(5.0)


@compiled("(float64[:,::1],int32[:,::1],float64[:,::1],int32[:,::1],float64[::1],float64[::1],float64)")
def cross_covariance(
    x: Floats, x_codes: Ints, z: Floats, z_codes: Ints, ordered: Floats, nominal: Floats, s2: float
) -> Floats:
    """Covariance between two lists of points: shape (len(x), len(z))."""
    n, m, width = x.shape[0], z.shape[0], x.shape[1]
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            r2 = 0.0
            for k in range(width):
                gap = x[i, k] - z[j, k]
                r2 += ordered[k] * gap * gap
                if x_codes[i, k] != z_codes[j, k]:
                    r2 += nominal[k]
            root = _SQRT5 * math.sqrt(r2)
            out[i, j] = s2 * (1.0 + root + root * root / 3.0) * math.exp(-root)
    return out


@compiled("(float64[:,::1],int32[:,::1],float64[::1],float64[::1])")
def correlation_and_slope(x: Floats, codes: Ints, ordered: Floats, nominal: Floats) -> tuple[Floats, Floats]:
    """Correlation of points with each other, and its derivative by ``r^2``: shapes (n, n)."""
    n, width = x.shape
    correlation, slope = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        correlation[i, i], slope[i, i] = 1.0, -5.0 / 6.0
        for j in range(i):
            r2 = 0.0
            for k in range(width):
                gap = x[i, k] - x[j, k]
                r2 += ordered[k] * gap * gap
                if codes[i, k] != codes[j, k]:
                    r2 += nominal[k]
            root = _SQRT5 * math.sqrt(r2)
            decay = math.exp(-root)
            correlation[i, j] = correlation[j, i] = (1.0 + root + root * root / 3.0) * decay
            slope[i, j] = slope[j, i] = -5.0 / 6.0 * (1.0 + root) * decay
    return correlation, slope


@compiled("(float64[:,::1],float64[:,::1],float64[:,::1],int32[:,::1])")
def weight_gradients(weights: Floats, slope: Floats, x: Floats, codes: Ints) -> tuple[Floats, Floats]:
    """``sum_ij weights_ij slope_ij d(r^2_ij)/dw_k`` for the ordered and the Hamming weights, each of shape (K,).

    Both matrices are symmetric.
    """
    n, width = x.shape
    ordered, nominal = np.zeros(width), np.zeros(width)
    for i in range(n):
        for j in range(i):
            factor = 2.0 * weights[i, j] * slope[i, j]
            for k in range(width):
                gap = x[i, k] - x[j, k]
                ordered[k] += factor * gap * gap
                if codes[i, k] != codes[j, k]:
                    nominal[k] += factor
    return ordered, nominal
