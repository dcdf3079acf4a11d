"""Two views of the measured points, a Gaussian process and a forest: a mean and a spread for every candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.search.portfolio.features import Floats, Ints, Points
from orchestrator.search.portfolio.forest import Forest
from orchestrator.search.portfolio.frame import Frame
from orchestrator.search.portfolio.gp import Posterior, fit
from orchestrator.search.portfolio.history import History
from orchestrator.search.portfolio.targets import Shape, Target, target


@dataclass(frozen=True)
class View:
    """What a model expects of candidates in one objective, smaller is better.

    Attributes:
        mean: Shape (candidates,), on the scale of the target.
        sd: Likewise.
        best: What it holds the best measured point to be worth.
        target: What it was fitted to.
    """

    mean: Floats
    sd: Floats
    best: float
    target: Target


def target_of(history: History, seen: Ints, objective: int, shape: Shape) -> Target:
    """What a model is fitted to: some of the measured points, in one objective."""
    return target(
        history.losses[seen, objective],
        history.noise_of(objective)[seen],
        is_log=bool(history.is_log[objective]),
        shape=shape,
    )


class GaussianProcesses:
    """One process for each objective and shape of target; its hyperparameters are those of the frame."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._posteriors: dict[tuple[int, Shape], tuple[Frame, Posterior]] = {}

    def view(self, history: History, frame: Frame, objective: int, shape: Shape) -> View:
        """What the process expects of the frame's candidates."""
        seen = frame.seen(len(history.rows))
        known = target_of(history, seen, objective, shape)
        posterior = self._posterior(history, frame, objective, shape)
        pending = len(history.pending)
        if pending:
            posterior.believe(history.pending)
        mean, sd, at_measured = posterior.predict(known.y)
        if pending:
            posterior.forget(pending)
        return View(mean, sd, float(at_measured.min()), known)

    def _posterior(self, history: History, frame: Frame, objective: int, shape: Shape) -> Posterior:
        seen = frame.seen(len(history.rows))
        rows, count = history.rows[seen], len(frame.basis)
        made_for, posterior = self._posteriors.get((objective, shape), (None, None))
        if posterior is None or made_for is not frame or posterior.rows != rows[: len(posterior.rows)].tolist():
            known = target_of(history, frame.basis, objective, shape)
            hyper = fit(self._points, rows[:count], known.y, known.noise)
            posterior = Posterior(self._points, frame.candidates, hyper)
            posterior.extend(rows[:count], known.noise)
            self._posteriors[objective, shape] = (frame, posterior)
        # One by one, as they came in a study that was never interrupted: then the bits agree too.
        for index in range(len(posterior.rows), len(rows)):
            noise = target_of(history, seen[: index + 1], objective, shape).noise[index:]
            posterior.extend(rows[index : index + 1], noise)
        return posterior


class Forests:
    """Grown anew for each question."""

    def __init__(self, points: Points) -> None:
        self._forest = Forest(points)

    def view(self, history: History, frame: Frame, objective: int, shape: Shape, candidates: Ints, seed: int) -> View:
        """What a forest expects of candidates. Points that are being measured count as it expects them to turn out."""
        seen = frame.seen(len(history.rows))
        known = target_of(history, seen, objective, shape)
        rows, y = history.rows[seen], known.y
        if len(history.pending):
            believed, _ = self._forest.predict(rows, y, history.pending, seed)
            rows, y = np.concatenate([rows, history.pending]), np.concatenate([y, believed])
        mean, sd = self._forest.predict(rows, y, candidates, seed)
        return View(mean, sd, float(known.y.min()), known)
