"""Proposals from what earlier runs knew, and when they are to be made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.search.memory.earlier import EarlierRun, standing
from orchestrator.search.memory.trust import trust
from orchestrator.search.portfolio.acquisition import log_expected_improvement
from orchestrator.search.portfolio.failures import FailureModel
from orchestrator.search.portfolio.features import Floats, Ints, Points
from orchestrator.search.portfolio.gp import Posterior, fit
from orchestrator.search.portfolio.history import History
from orchestrator.search.portfolio.start import start_score
from orchestrator.search.portfolio.targets import target

HORIZON = 200
"""Trials after which a study knows more than any memory tells it; a proposal from there on would be dear, too."""
_PROBES = (0, 2, 4)
"""Numbers of earlier trials at which earlier runs show what they know, while it is not known what that is worth."""
_UNTRIED = 8
"""Trials from which on their share depends on what the probes and the others gave."""
_SHARE = 0.6
"""Their share of the proposals when they are wholly trusted."""
_CHANCE = 0.25
"""Below this trust a run does no better than chance, and has no say."""
_FEWEST_GOOD = 4
"""The better half of what was measured is at least so many points."""
_SPREAD_OUT = 0.5
"""What a probe adds to the start design counts so much beside its standing: where the run misleads, the trial still
serves as one of the first."""
_SLOPE, _SLOPE_WEIGHT = 0.5, 2.0
"""Slope of the losses here on the standing that is expected, and for how many trials that expectation counts."""
_CAUTION = 3.0
"""Power of the probability that a point succeeds; as in the portfolio."""
_MOST = 2500
"""Of a long list of points, so many of the best standing are scored, and as many others."""


class Advisor:
    """Chooses points of a finite list by what earlier runs measured, as far as they prove right here.

    Source: as in Feurer, Letham and Bakshy (2018), a run weighs by how well it ranks what was measured here. A point is
    judged by its standing among the runs plus a Gaussian process on what the standing does not explain, which is the
    stacking of Golovin et al. (2017), "Google Vizier", section 3.3.2, with a slope in front of the standing.

    Args:
        runs: At least one; each shares a knob with the points.
        seed: A proposal depends on it, on the number of the trial and on the history, and on nothing else.

    Raises:
        ValueError: There is no run, or one shares no knob.
    """

    def __init__(self, points: Points, runs: Sequence[EarlierRun], *, seed: int) -> None:
        if not runs:
            raise ValueError("there is no earlier run")
        self._points, self._seed = points, seed
        self._standings = np.stack([standing(points, run) for run in runs])
        self._failures = FailureModel(points)

    def trusts(self, history: History) -> Floats:
        """Shape (runs,): probability that each ranks points of this study usefully; 0 for one that has no say.

        It has to rank the better half of them, too: telling bad points from good ones does not find the best.
        """
        losses, rows = history.losses[:, 0], history.rows
        good = np.argsort(losses, kind="stable")[: max((len(rows) + 1) // 2, _FEWEST_GOOD)]
        found = [min(trust(one[rows], losses), trust(one[rows[good]], losses[good])) for one in self._standings]
        return np.where(np.array(found) >= _CHANCE, found, 0.0)

    def propose(self, history: History, number: int, log_cost: Floats | None = None) -> int | None:
        """Row of the next point; None when somebody else is to propose it.

        Args:
            history: Of one objective.
            number: Of the trial.
            log_cost: Shape (N,): logarithm of what each point costs, up to a constant; None when all cost the same.
        """
        # The last number keeps these draws apart from those of a portfolio with the same seed.
        rng = np.random.default_rng([self._seed, number, 1])
        trusts = self.trusts(history)
        if number >= HORIZON or not self._has_turn(history, float(trusts.max()), rng):
            return None
        blend = _standardised(trusts @ self._standings)
        candidates = self._candidates(history, blend, rng)
        if len(candidates) == 0:
            return None
        if len(history.rows) < 2 or len(history.asked) < _UNTRIED:
            asked = np.concatenate([history.tried, history.pending])
            score = _SPREAD_OUT * start_score(self._points, asked, candidates) - blend[candidates]
        else:
            score = self._promise(history, blend, candidates)
        failing = self._failures.probability(history.tried, history.has_failed.astype(float), candidates)
        score = score + _CAUTION * np.log(np.maximum(1.0 - failing, 1e-6))
        if log_cost is not None:
            score = score - log_cost[candidates]
        return int(candidates[np.argmax(score + 1e-9 * rng.random(len(candidates)))])

    def _has_turn(self, history: History, trust: float, rng: np.random.Generator) -> bool:
        asked = len(history.asked)
        if asked < _UNTRIED:
            return trust > 0.0 and asked in _PROBES
        return bool(rng.random() < _SHARE * trust)

    def _candidates(self, history: History, blend: Floats, rng: np.random.Generator) -> Ints:
        """Points that were not tried: all, or some of many."""
        is_open = np.ones(self._points.size, dtype=bool)
        is_open[history.tried] = is_open[history.pending] = False
        rows = np.flatnonzero(is_open).astype(np.int32)
        if len(rows) <= 2 * _MOST:
            return rows
        best = rows[np.argsort(blend[rows], kind="stable")[:_MOST]]
        return np.union1d(best, rng.choice(rows, _MOST, replace=False)).astype(np.int32)

    def _promise(self, history: History, blend: Floats, candidates: Ints) -> Floats:
        """Logarithm of the expected improvement, up to a constant."""
        rows = history.rows
        known = target(history.losses[:, 0], history.noise_of(0), is_log=bool(history.is_log[0]), shape="plain")
        here = blend[rows] - blend[rows].mean()
        slope = (float(here @ known.y) + _SLOPE_WEIGHT * _SLOPE) / (float(here @ here) + _SLOPE_WEIGHT)
        explained = max(slope, 0.0) * here
        rest = target(known.y - explained, known.noise, is_log=False, shape="plain")
        posterior = Posterior(self._points, candidates, fit(self._points, rows, rest.y, rest.noise))
        posterior.extend(rows, rest.noise)
        if len(history.pending):
            posterior.believe(history.pending)
        mean, sd, at_measured = posterior.predict(rest.y)
        mean = rest.spread * mean + max(slope, 0.0) * (blend[candidates] - blend[rows].mean())
        best = float((rest.spread * at_measured + explained).min())
        return log_expected_improvement(mean, rest.spread * sd, best)


def _standardised(values: Floats) -> Floats:
    spread = float(values.std())
    return np.asarray((values - values.mean()) / spread) if spread > 0 else np.zeros_like(values)
