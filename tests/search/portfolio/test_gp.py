from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from orchestrator.search.portfolio.features import Floats, Ints
from orchestrator.search.portfolio.gp import Hyperparameters, Posterior, Prior, fit, negative_log_posterior
from orchestrator.search.portfolio.kernel import cross_covariance
from tests.search.portfolio.conftest import GRID, POINTS, seconds

ROWS = np.random.default_rng(1).choice(POINTS.size, 40, replace=False).astype(np.int32)
ALL = np.arange(POINTS.size, dtype=np.int32)


def standardised(rows: Ints) -> Floats:
    y = np.log([seconds(GRID[row]) for row in rows])
    return np.asarray((y - y.mean()) / y.std())


def plain_posterior(hyper: Hyperparameters, rows: Ints, y: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """By the textbook, with explicit inverses."""
    weights = (hyper.ordered, hyper.nominal, hyper.s2)
    x, codes = POINTS.coordinates, POINTS.codes
    inverse = np.linalg.inv(
        cross_covariance(x[rows], codes[rows], x[rows], codes[rows], *weights) + np.diag(hyper.noise + noise)
    )
    across = cross_covariance(x, codes, x[rows], codes[rows], *weights)
    mean = (inverse @ y).sum() / inverse.sum()
    variance = hyper.s2 - np.einsum("ij,jk,ik->i", across, inverse, across)
    return mean + across @ inverse @ (y - mean), np.sqrt(variance)


def test_the_kernel_is_matern_of_the_weighted_distance() -> None:
    ordered, nominal = np.array([1.0, 2.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])
    found = cross_covariance(POINTS.coordinates, POINTS.codes, POINTS.coordinates, POINTS.codes, ordered, nominal, 2.0)
    i, j = 3, 170
    gap = POINTS.coordinates[i] - POINTS.coordinates[j]
    r = np.sqrt(5 * (ordered @ gap**2 + nominal @ (POINTS.codes[i] != POINTS.codes[j])))
    assert found[i, j] == pytest.approx(2.0 * (1 + r + r**2 / 3) * np.exp(-r))
    assert np.diag(found) == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_value(seed: int) -> None:
    prior, y = Prior(POINTS), standardised(ROWS)
    noise = np.linspace(0.0, 0.1, len(ROWS))
    rest = (prior, POINTS.coordinates[ROWS], POINTS.codes[ROWS], y, noise)
    theta = prior.mean + prior.sd * np.random.default_rng(seed).normal(size=len(prior.mean))
    off = check_grad(
        lambda t: negative_log_posterior(t, *rest)[0], lambda t: negative_log_posterior(t, *rest)[1], theta
    )
    assert off < 1e-3 * (1 + np.linalg.norm(negative_log_posterior(theta, *rest)[1]))


def test_the_fit_is_better_than_the_priors_mean() -> None:
    y, zero = standardised(ROWS), np.zeros(len(ROWS))
    hyper = fit(POINTS, ROWS, y, zero)
    mean, _ = plain_posterior(hyper, ROWS, y, zero)
    start = Prior(POINTS).unpack(Prior(POINTS).mean)
    guess, _ = plain_posterior(start, ROWS, y, zero)
    truth = standardised(ALL)
    assert np.corrcoef(mean, truth)[0, 1] > max(0.97, float(np.corrcoef(guess, truth)[0, 1]))


def test_noise_that_was_measured_is_not_explained() -> None:
    y, zero = standardised(ROWS), np.zeros(len(ROWS))
    noisy = y + np.random.default_rng(0).normal(0, 0.7, len(y))
    trusting, told = fit(POINTS, ROWS, noisy, zero), fit(POINTS, ROWS, noisy, zero + 0.5)
    truth = standardised(ALL)
    by_trust, _ = plain_posterior(trusting, ROWS, noisy, zero)
    by_word, _ = plain_posterior(told, ROWS, noisy, zero + 0.5)
    assert told.noise < trusting.noise
    assert np.mean((by_word - truth) ** 2) <= np.mean((by_trust - truth) ** 2) * 1.1


@pytest.mark.parametrize("portions", [[40], [20] + [1] * 20, [1] * 40, [13, 27]])
def test_the_posterior_is_the_textbooks_however_it_grew(portions: list[int]) -> None:
    y, noise = standardised(ROWS), np.linspace(0.0, 0.2, len(ROWS))
    hyper = fit(POINTS, ROWS, y, noise)
    posterior, begin = Posterior(POINTS, ALL, hyper), 0
    for count in portions:
        posterior.extend(ROWS[begin : begin + count], noise[begin : begin + count])
        begin += count
    mean, sd, at_measured = posterior.predict(y)
    expected_mean, expected_sd = plain_posterior(hyper, ROWS, y, noise)
    assert mean == pytest.approx(expected_mean, abs=1e-6)
    assert sd == pytest.approx(expected_sd, abs=1e-4)
    assert at_measured == pytest.approx(expected_mean[ROWS], abs=1e-6)


def test_a_believed_point_keeps_the_mean_and_is_forgotten() -> None:
    y, zero = standardised(ROWS), np.zeros(len(ROWS))
    posterior = Posterior(POINTS, ALL, fit(POINTS, ROWS, y, zero))
    posterior.extend(ROWS, zero)
    before = posterior.predict(y)
    pending = np.setdiff1d(ALL, ROWS)[:3]
    posterior.believe(pending)
    during = posterior.predict(y)
    assert during[0] == pytest.approx(before[0])
    assert (during[1][pending] < 0.3 * before[1][pending]).all()
    posterior.forget(3)
    after = posterior.predict(y)
    assert all((one == other).all() for one, other in zip(before, after, strict=True))
    posterior.extend(pending[:1], zero[:1])
    assert posterior.rows[-1] == pending[0]
