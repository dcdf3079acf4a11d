"""What a ratio is worth after the best of many was picked: the winner's curse, and its cure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.measurement.distributions import normal_cdf
from orchestrator.measurement.stats.paired import RatioInterval, paired_ratio


def confirm(
    finalists: Sequence[tuple[Sequence[float], Sequence[float]]], *, family_level: float
) -> tuple[RatioInterval, ...]:
    """Intervals for finalists from fresh pairs, which hold all at once.

    The best of many estimates owes its place partly to luck: it is too good on average, and its interval covers less
    than it says, however each single estimate was made. Pairs that had no say in the choice, measured with fresh
    seeds, carry none of that luck: given who the finalists are, their ratios are unbiased. Picking the best *finalist*
    by these intervals is a selection again, so each is made at level ``1 - (1 - family_level) / k``; by Bonferroni's
    inequality all ``k`` hold together with ``family_level``, and so does the one that is picked.

    A finalist is proven better if its interval excludes 1 on the better side. If none truly is, this happens with
    probability ``(1 - family_level) / 2`` at most.

    Sources: Benjamini and Yekutieli, False discovery rate-adjusted multiple confidence intervals for selected
    parameters, JASA 100, 2005 (why selected intervals miss); Dunn, Multiple comparisons among means, JASA 56, 1961.

    Args:
        finalists: Candidate's and baseline's measurements of each finalist's fresh pairs, at least 1 finalist.
        family_level: Confidence that all intervals hold, between 0 and 1.

    Returns:
        One interval for each finalist, in their order.

    Raises:
        ValueError: No finalist, ``family_level`` out of range, or pairs that ``paired_ratio`` refuses.
    """
    if not finalists:
        raise ValueError("finalists is empty")
    if not 0 < family_level < 1:
        raise ValueError(f"family_level must be between 0 and 1, got {family_level}")
    level = 1 - (1 - family_level) / len(finalists)
    return tuple(paired_ratio(candidate, baseline, level=level) for candidate, baseline in finalists)


def expected_optimism(candidates: int, standard_error: float) -> float:
    """How much too good the best of equal candidates looks on average: the size of the winner's curse.

    ``E[max of k standard normals] * standard_error``, by integrating ``x d(Phi(x)^k)``. Candidates that truly differ
    have less: it is the worst case. 20 points with a standard error of 2 % look 3.7 % better than they are.

    Source: David and Nagaraja, Order Statistics, 3rd edition, section 3.1.

    Args:
        candidates: Number of candidates that were compared, at least 1.
        standard_error: Standard error of one candidate's log ratio, 0 or more.

    Returns:
        The optimism in log units, 0 for a single candidate.

    Raises:
        ValueError: ``candidates`` or ``standard_error`` is out of range.
    """
    if candidates < 1:
        raise ValueError(f"candidates must be at least 1, got {candidates}")
    if not (math.isfinite(standard_error) and standard_error >= 0):
        raise ValueError(f"standard_error must be 0 or more and finite, got {standard_error}")

    if candidates == 1:
        return 0.0
    x = np.linspace(-12, 12, 4801)
    density = candidates * normal_cdf(x) ** (candidates - 1) * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.trapezoid(x * density, x)) * standard_error
