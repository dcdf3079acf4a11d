"""The answer to a sweep, as data."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.analysis.accuracy import AccuracyCheck
from orchestrator.analysis.by_load import LoadBest
from orchestrator.analysis.drift import RunDrift
from orchestrator.records import SoakState

if TYPE_CHECKING:
    from rich.console import Console

Decision = Literal["winner", "no clear winner", "pareto set"]


@dataclass(frozen=True)
class ObjectiveRatio:
    """Candidate / baseline in one of several objectives, with its interval."""

    metric: str
    direction: str
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class Finalist:
    """A point that was chosen to be measured again with fresh prompts.

    Attributes:
        trial: Number of the trial that found it.
        point: One value per knob.
        ratio: Geometric mean of candidate / baseline; ``None`` without a complete pair. So are ``ratio_low`` and
            ``ratio_high``, the ends of its interval (0 and infinity if there is one pair only).
        pairs: Pairs behind the ratio.
        starts: Starts of the engines that these pairs are of. With 1, the interval is that of one start: those of
            another may lie beside it.
        accuracy: Outcome of the accuracy guard.
        obstacle: Why the point cannot be recommended; ``None`` if it can.
        probability_best: Probability of being the best of the finalists; ``None`` with fewer than 3 pairs, or fewer
            than 3 starts where there are several.
        expected_loss: How much worse than the best of them it is on average, as a share; ``None`` likewise.
        soak: How its latest soak ended.
        objectives: Of a study with several, the ratio of each; ``ratio`` is the first of them.
    """

    trial: int
    point: dict[str, Any]
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    pairs: int
    starts: int
    accuracy: AccuracyCheck
    obstacle: str | None
    probability_best: float | None = None
    expected_loss: float | None = None
    soak: SoakState = "not run"
    objectives: tuple[ObjectiveRatio, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a run says. Without a winner, the fields from ``ratio`` to ``env`` describe the best confirmed point; with
    several objectives nobody can say which that is, and they are ``None``.

    Attributes:
        decision: ``"winner"`` only if a confirmed point is better than the baseline beyond doubt and passes the guard.
            ``"pareto set"`` in place of it with several objectives: the finalists without an obstacle.
        reason: Why this decision, in one line.
        study: Name of the study.
        metric: Objective: a column of the blocks table.
        direction: ``minimize`` or ``maximize``.
        ratio: Candidate / baseline; ``None`` if nothing was confirmed. So are the other fields of the point.
        ratio_low: Lower end of the interval.
        ratio_high: Upper end of the interval.
        level: Confidence level of this one interval: ``1 - (1 - family_level) / finalists``.
        family_level: Confidence that the intervals of all finalists hold at once.
        pairs: Pairs behind the ratio.
        starts: Starts of the engines that these pairs are of; see ``Finalist``.
        trial: Number of the trial.
        point: One value per knob.
        memory: ``workspace_rows``, ``workspace_bytes``, ``workspace_alignment`` (rows), ``builders``, ``kv_blocks`` in
            force, and under ``baseline`` the ``workspace_rows`` and ``workspace_bytes`` of the baseline.
        accuracy: Outcome of the accuracy guard.
        soak: How the latest soak of the point ended.
        serve_args: Arguments after ``vllm serve`` that reproduce the point; empty for a point of the kernel lab, which
            nobody can serve.
        env: Environment variables that reproduce the point.
        finalists: The points that the search chose, best confirmed ratio first.
        baseline: Values that the spec names for the baseline; empty if the baseline is vLLM's default.
        counts: ``trials`` by outcome and ``failures`` by class.
        drift: How the baseline moved during the run; ``None`` with too few blocks to tell.
        by_load: Where the load was searched too, the best trial of the search under each load.
        importance: Share of each knob in what sets the best trials apart, largest first; ``None`` with fewer than 10
            complete trials or without Optuna.
    """

    decision: Decision
    reason: str
    study: str
    metric: str
    direction: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    level: float | None = None
    family_level: float = 0.95
    pairs: int = 0
    starts: int = 0
    trial: int | None = None
    point: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    accuracy: AccuracyCheck | None = None
    soak: SoakState = "not run"
    serve_args: list[str] | None = None
    env: dict[str, str] | None = None
    finalists: tuple[Finalist, ...] = ()
    drift: RunDrift | None = None
    by_load: tuple[LoadBest, ...] = ()
    importance: dict[str, float] | None = None
    baseline: dict[str, Any]
    counts: dict[str, dict[str, int]]

    def to_json(self) -> str:
        """The fields as a JSON object. JSON knows no infinity: an open end of an interval is ``null``."""
        return json.dumps(_without_infinity(asdict(self)), indent=2, allow_nan=False)

    def command(self) -> str:
        """The shell command that serves the point.

        Raises:
            ValueError: There is no winner, or it is a point of the kernel lab, so there is nothing to deploy.
        """
        if self.serve_args == []:
            raise ValueError("a point of the kernel lab has no model, so there is no command to deploy")
        if self.decision != "winner" or self.serve_args is None or self.env is None:
            raise ValueError("there is no winner, so there is no command to deploy")
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*assignments, "vllm", "serve", shlex.join(self.serve_args)])

    def render(self, console: Console) -> None:
        """Print the answer for a person to read."""
        from orchestrator.analysis.render import render

        render(self, console)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(member) for member in value]
    return None if isinstance(value, float) and math.isinf(value) else value
