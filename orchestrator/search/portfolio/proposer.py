"""Who proposes what: arms that share all that was measured, and a policy that gives each its turns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.search.portfolio.acquisition import log_expected_hypervolume, log_expected_improvement
from orchestrator.search.portfolio.failures import FailureModel
from orchestrator.search.portfolio.features import Floats, Ints, Mask, Points
from orchestrator.search.portfolio.frame import Framer
from orchestrator.search.portfolio.history import History
from orchestrator.search.portfolio.policy import shares
from orchestrator.search.portfolio.start import start_score
from orchestrator.search.portfolio.surrogates import Forests, GaussianProcesses, View
from orchestrator.search.portfolio.targets import Shape

ARMS = ("gp", "forest", "local", "bounded-gp")
"""``gp``: a Gaussian process on the loss. ``forest``: extra-trees. ``local``: extra-trees, but only among the
neighbours of one of the best points. ``bounded-gp``: a process on a target that ignores how bad a bad point is; not
with several objectives, where a trade-off has no best value to be bounded by."""

START = 8
"""Measured points before a model has its say."""

_CAUTION = 3.0
"""Power of the probability that a point succeeds: 1 would price a failure as an evaluation lost, but it often takes an
engine with it."""
LIKELY = 0.8
"""A point that fails with a higher probability than ``LIKELY`` (two failures and no success at its values of the two
knobs that decide) is proposed only when no other is left."""
_NOTHING, _RANK = math.log(1e-6), 1e-3
"""Less than a millionth of the values' spread is no gain: it still ranks points, by a thousandth of its logarithm, but
no longer outweighs what they cost."""
_NEAREST = 0.7
"""Probability that the local arm looks around the best point; else it goes on to the next one with the same."""
_MOST_CENTRES = 20


@dataclass(frozen=True)
class Proposal:
    """A point to measure next, and the arm that proposes it; None in the start."""

    row: int
    arm: int | None


class Proposer:
    """Chooses the next point of a finite list.

    Args:
        seed: A proposal depends on it, on the number of the trial and on the history, and on nothing else.
        start: Measured points before a model has its say, at least 2.
    """

    def __init__(self, points: Points, *, seed: int, start: int = START) -> None:
        if start < 2:
            raise ValueError(f"start must be at least 2, got {start}")
        self._points, self._seed, self._start = points, seed, start
        self._framer = Framer(points, seed)
        self._processes = GaussianProcesses(points)
        self._forests = Forests(points)
        self._failures = FailureModel(points)

    def propose(self, history: History, number: int, log_cost: Floats | None = None) -> Proposal:
        """The next point.

        Args:
            number: Of the trial.
            log_cost: Shape (N,): logarithm of what each point costs, up to a constant; None when all cost the same.
        """
        rng = np.random.default_rng([self._seed, number])
        is_open = self._open(history)
        arm = None
        if self._is_start(history):
            candidates = self._framer.sample(rng)
            score = start_score(self._points, np.concatenate([history.tried, history.pending]), candidates)
        else:
            arm = self._arm(history, rng)
            candidates, promise = self._score(arm, history, is_open, rng)
            score = np.maximum(promise, _NOTHING) + _RANK * np.minimum(promise - _NOTHING, 0.0)
        if not is_open[candidates].any():
            candidates = np.flatnonzero(is_open).astype(np.int32)
            score = np.zeros(len(candidates))
        failing = self._failures.probability(history.tried, history.has_failed.astype(float), candidates)
        score = score + _CAUTION * np.log(np.maximum(1.0 - failing, 1e-6))
        if log_cost is not None:
            score = score - log_cost[candidates]
        allowed = is_open[candidates] & (failing <= LIKELY)
        if not allowed.any():
            allowed = is_open[candidates]
        score = np.where(allowed, score + 1e-9 * rng.random(len(candidates)), -np.inf)
        return Proposal(int(candidates[np.argmax(score)]), arm)

    def expected_gain(self, history: History) -> float | None:
        """Largest expected improvement of the best value over the open points, as a share of that value.

        None in the start and with several objectives, whose improvement is no share of anything. A point that probably
        fails promises nothing, and what fails half of the time half as much.
        """
        if self._is_start(history) or len(history.minimise) > 1:
            return None
        frame = self._framer.frame(history)
        is_open = self._open(history)[frame.candidates]
        view = self._processes.view(history, frame, 0, "plain")
        promise = log_expected_improvement(view.mean, view.sd, view.best)[is_open]
        has_failed = history.has_failed.astype(float)
        failing = self._failures.probability(history.tried, has_failed, frame.candidates[is_open])
        gains = np.exp(promise) * np.where(failing > LIKELY, 0.0, 1.0 - failing)
        gain = float(gains.max(initial=0.0)) * view.target.spread
        best = float(history.losses.min())
        # On the log scale an improvement is a logarithm already.
        return -math.expm1(-gain) if history.is_log[0] else gain / max(abs(best), 1e-12)

    def _is_start(self, history: History) -> bool:
        measured = len(history.rows)
        return measured < 2 or (measured < self._start and len(history.tried) < 4 * self._start)

    def _open(self, history: History) -> Mask:
        """Points that may be proposed: those not asked for; when there is none, those whose trials were lost; then
        those that did not fail; else all."""
        for closed in (history.asked, history.tried, history.tried[history.has_failed]):
            is_open = np.ones(self._points.size, dtype=bool)
            is_open[closed] = is_open[history.pending] = False
            if is_open.any():
                return is_open
        return np.ones(self._points.size, dtype=bool)

    def _arm(self, history: History, rng: np.random.Generator) -> int:
        arms = len(ARMS) if len(history.minimise) == 1 else len(ARMS) - 1
        return int(rng.choice(arms, p=shares(history, arms)))

    def _score(self, arm: int, history: History, is_open: Mask, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Candidates and what they promise, as a logarithm."""
        frame, name = self._framer.frame(history), ARMS[arm]
        objectives = range(len(history.minimise))
        candidates = frame.candidates
        if name == "local":
            near = self._neighbourhood(history, is_open, rng)
            candidates = near if near is not None else candidates
        if name in ("gp", "bounded-gp"):
            shape: Shape = "plain" if name == "gp" else "bounded"
            views = [self._processes.view(history, frame, one, shape) for one in objectives]
        else:
            shape = "bounded" if len(objectives) == 1 else "plain"
            seed = int(rng.integers(2**32))
            views = [self._forests.view(history, frame, one, shape, candidates, seed) for one in objectives]
        if len(views) == 1:
            return candidates, log_expected_improvement(views[0].mean, views[0].sd, views[0].best)
        return candidates, _hypervolume(history, views, rng)

    def _neighbourhood(self, history: History, is_open: Mask, rng: np.random.Generator) -> Ints | None:
        """Open neighbours of one of the best points; None when the best ones have none left."""
        losses = history.losses
        if losses.shape[1] == 1:
            order = np.argsort(losses[:, 0], kind="stable")
        else:
            order = rng.permutation(np.flatnonzero(history.front))
        for place, index in enumerate(order[:_MOST_CENTRES]):
            if place + 1 < len(order) and rng.random() > _NEAREST:
                continue
            near = self._points.neighbours(int(history.rows[index]))
            near = near[is_open[near]]
            if len(near):
                return near
        return None


def _hypervolume(history: History, views: list[View], rng: np.random.Generator) -> Floats:
    scale = [(view.target.centre, view.target.spread) for view in views]
    front = (history.losses[history.front] - [centre for centre, _ in scale]) / [spread for _, spread in scale]
    mean, sd = np.stack([view.mean for view in views]), np.stack([view.sd for view in views])
    return log_expected_hypervolume(mean, sd, front, rng)
