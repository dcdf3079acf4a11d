"""The few distributions behind the intervals. An analysis then needs no SciPy, which alone takes 140 MB."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

_TINY: Final = 1e-300
_PRECISION: Final = 1e-15
_MOST_TERMS: Final = 10_000
_NORMAL_FROM: Final = 1e9
"""Degrees of freedom from which Student's t is the normal distribution, to all digits of a float."""


def normal_cdf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability that a standard normal variable is at most ``x``, for each element."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.ravel()]).reshape(x.shape)


def beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), to about 12 digits.

    Source: the continued fraction of DLMF 8.17.22, which converges fast where x is below (a + 1) / (a + b + 2); above,
    the symmetry of 8.17.4.

    Args:
        a: Above 0, as is ``b``.
        x: 0 to 1.

    Raises:
        ValueError: An argument is out of range.
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"a and b must be above 0 and x within 0 and 1, got {a}, {b} and {x}")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1 / (1 + d2 / (1 + ...)), from the front by the modified method of Lentz."""
    value = ahead = 1.0
    behind = 0.0
    for term in range(1, _MOST_TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        behind = 1.0 / ((1.0 + d * behind) or _TINY)
        ahead = (1.0 + d / ahead) or _TINY
        value *= ahead * behind
        if abs(ahead * behind - 1.0) < _PRECISION:
            break
    return value


def f_tail(added: float, left: float, x: float) -> float:
    """Probability that F with ``added`` and ``left`` degrees of freedom is above ``x``, which is at least 0."""
    return beta_cdf(left / 2, added / 2, left / (left + added * x))


def t_tail(dof: float, t: float) -> float:
    """Probability that Student's t with ``dof`` degrees of freedom is above ``t``, which is at least 0."""
    return 0.5 * beta_cdf(dof / 2, 0.5, dof / (dof + t * t))


@lru_cache(maxsize=4096)
def t_quantile(dof: float, probability: float) -> float:
    """The value that Student's t is at most, with the given probability.

    Args:
        dof: Degrees of freedom, need not be whole.
        probability: Above 0 and below 1.

    Returns:
        To about 12 digits; NaN where ``dof`` is not above 0.
    """
    if not dof > 0:
        return math.nan
    if probability < 0.5:
        return -t_quantile(dof, 1 - probability)
    if probability == 0.5:
        return 0.0
    high = max(NormalDist().inv_cdf(probability), 1e-8)
    if dof >= _NORMAL_FROM:
        return high
    # The tails of t are heavier, so its quantile lies above the normal one; then halved between the two.
    low, tail = 0.0, 1 - probability
    while t_tail(dof, high) > tail:
        low, high = high, 2 * high
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_tail(dof, middle) > tail else (low, middle)
    return (low + high) / 2
