from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, spearmanr

from orchestrator.search.portfolio.acquisition import log_expected_hypervolume, log_expected_improvement
from orchestrator.search.portfolio.features import Floats


@pytest.mark.parametrize(("mean", "sd", "best"), [(0.0, 1.0, 0.5), (2.0, 0.5, -1.0), (-1.0, 0.1, 0.0), (0.3, 2.0, 0.3)])
def test_it_is_the_integral(mean: float, sd: float, best: float) -> None:
    integral, _ = quad(lambda y: (best - y) * norm.pdf(y, mean, sd), mean - 12 * sd, best, epsabs=1e-14)
    assert log_expected_improvement(np.array([mean]), np.array([sd]), best)[0] == pytest.approx(
        np.log(integral), abs=1e-5
    )


def test_it_ranks_where_the_plain_formula_is_zero() -> None:
    means = np.array([50.0, 500.0, 5e3, 5e4, 5e5])
    found = log_expected_improvement(means, np.ones(5), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()
    assert found[0] == pytest.approx(-1250.0 - 0.9189 - 2 * np.log(50.0), abs=0.01)
    assert np.isfinite(log_expected_improvement(np.array([1.0, 0.0]), np.zeros(2), 0.5)).all()


def hypervolume(front: Floats, reference: Floats) -> float:
    order = front[np.argsort(front[:, 0])]
    volume, level = 0.0, reference[1]
    for x, y in order:
        if y < level and x < reference[0]:
            volume += (reference[0] - x) * (level - y)
            level = y
    return volume


def test_points_are_ranked_as_by_sampled_hypervolume() -> None:
    rng = np.random.default_rng(0)
    front = np.array([[-1.0, 1.0], [0.0, 0.0], [1.2, -0.8]])
    mean, sd = rng.normal(0.3, 1.0, (2, 60)), rng.uniform(0.1, 0.6, (2, 60))
    ideal = np.minimum(front.min(axis=0), (mean - 3 * sd).min(axis=1))
    reference = front.max(axis=0) + 0.1 * (front.max(axis=0) - ideal)
    draws = mean[:, :, None] + sd[:, :, None] * rng.standard_normal((2, 60, 200))
    base = hypervolume(front, reference)
    sampled = [
        np.mean([hypervolume(np.vstack([front, draws[:, i, k]]), reference) - base for k in range(200)])
        for i in range(60)
    ]
    found = np.exp([log_expected_hypervolume(mean, sd, front, np.random.default_rng(seed)) for seed in range(8)])
    assert spearmanr(found.mean(axis=0), sampled).statistic > 0.97


def test_a_sure_gain_counts_by_its_hypervolume() -> None:
    front = np.array([[0.0, 1.0], [1.0, 0.0]])
    mean = np.array([[-1.0, 0.5, 0.4, 0.9], [-1.0, 0.5, 0.8, 0.05]])
    reference = front.max(axis=0) + 0.1 * (front.max(axis=0) - mean.min(axis=1))
    base = hypervolume(front, reference)
    expected = np.array([hypervolume(np.vstack([front, point]), reference) - base for point in mean.T])
    sd = np.full((2, 4), 1e-3)
    found = np.mean(
        [np.exp(log_expected_hypervolume(mean, sd, front, np.random.default_rng(seed))) for seed in range(400)], axis=0
    )
    assert found / found[0] == pytest.approx(expected / expected[0], rel=0.25)


def test_with_one_objective_it_ranks_as_the_improvement() -> None:
    mean, sd = np.linspace(-1, 2, 20)[None, :], np.full((1, 20), 0.4)
    found = log_expected_hypervolume(mean, sd, np.array([[0.0]]), np.random.default_rng(0))
    expected = log_expected_improvement(mean[0], sd[0], 0.0)
    assert (np.argsort(found[:14]) == np.argsort(expected[:14])).all()
