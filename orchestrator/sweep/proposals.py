"""What a study may propose, and who proposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.errors import ChunksmithError
from orchestrator.search import Point, Space, group_schedule
from orchestrator.search.flags import is_load
from orchestrator.search.memory import EarlierRun, MemorySampler
from orchestrator.search.portfolio import GroupCost, PortfolioSampler
from orchestrator.search.sampler import ScheduledSampler
from orchestrator.sweep.knob_check import EQUALS_BASELINE, equals_baseline
from orchestrator.sweep.spec import SweepSpec

MOST_POINTS: Final = 100_000
"""Points of a sample of a space that is too large to list; a smaller one is searched whole."""

WarmNow = Callable[[], Sequence[Point]]

_START_S, _TRIAL_S = 60.0, 20.0
"""Seconds of an engine start and of a trial, until the first ones were measured."""


@dataclass(frozen=True)
class Proposals:
    """What may be proposed.

    Attributes:
        points: Every point that may be measured, or a large sample of them: those that keep all known constraints and
            are not the baseline itself.
        choices: The values of each knob that occur among them, in the order of the space.
        sampler: Proposes each of them once.
    """

    points: Sequence[Point]
    choices: Mapping[str, tuple[KnobValue, ...]]
    sampler: BaseSampler


def make_proposals(
    spec: SweepSpec,
    base: EngineConfig,
    *,
    engines: int,
    earlier: Sequence[EarlierRun] = (),
    warm_now: WarmNow | None = None,
) -> Proposals:
    """The proposals of a study.

    Args:
        base: What every engine of the study has in common.
        engines: How many engines may be warm at a time, 1 or 2. The baseline's is one of them.
        earlier: Runs that propose some of the points.
        warm_now: Where there are several pools, the groups that are warm in the one that a point is proposed for.

    Raises:
        ChunksmithError: No point is left.
    """
    space = spec.search_space()
    listed = space.valid_points(MOST_POINTS, seed=spec.seed)
    at_baseline = _equal_to_baseline(spec, base)
    points = [point for point in listed if not at_baseline(point)]
    if not points:
        raise ChunksmithError("no point of the space can be measured: each one breaks a constraint or is the baseline")
    occurring = {knob.name: {(type(point[knob.name]), point[knob.name]) for point in points} for knob in space.knobs}
    choices = {
        knob.name: tuple(value for value in knob.values if (type(value), value) in occurring[knob.name])
        for knob in space.knobs
    }
    cost = _cost(spec, space, engines, warm_now)
    sampler = _sampler(spec, space, points, choices, cost)
    if earlier:
        sampler = MemorySampler(sampler, points, earlier, seed=spec.seed, cost=cost)
    return Proposals(points, choices, sampler)


def ruled_out(spec: SweepSpec, space: Space, base: EngineConfig, point: Point) -> str | None:
    """Why arithmetic alone rules a point out; None when it may be measured."""
    if equals_baseline(point, spec.baseline_at(point), base):
        return EQUALS_BASELINE
    return space.violated(point)


def _equal_to_baseline(spec: SweepSpec, base: EngineConfig) -> Callable[[Point], bool]:
    """Tells whether a point is the baseline's; for many points."""
    if any(is_load(name) for name in spec.space):
        return lambda point: equals_baseline(point, spec.baseline_at(point), base)
    baseline = spec.baseline_point()
    return lambda point: equals_baseline(point, baseline, base)


def _sampler(
    spec: SweepSpec,
    space: Space,
    points: Sequence[Point],
    choices: Mapping[str, tuple[KnobValue, ...]],
    cost: GroupCost | None,
) -> BaseSampler:
    kind, startup = spec.sampler.kind, spec.sampler.startup
    distributions = {name: CategoricalDistribution(values) for name, values in choices.items()}
    if kind != "portfolio":
        knobs, group = _first_group(spec, space)
        schedule = group_schedule(points, knobs, trials=spec.trials, seed=spec.seed, first=group)
        return ScheduledSampler(
            points, kind, distributions, engine_knobs=knobs, schedule=schedule, seed=spec.seed, startup=startup
        )
    return PortfolioSampler(
        points,
        seed=spec.seed,
        distributions=distributions,
        cost=cost,
        start=startup,
        records_gain=spec.stop is not None,
    )


def _first_group(spec: SweepSpec, space: Space) -> tuple[list[str], Point]:
    """Knobs that an engine is started with, and their values at the baseline."""
    knobs, baseline = space.names("engine"), spec.baseline_point()
    return knobs, {name: baseline[name] for name in knobs}


def _cost(spec: SweepSpec, space: Space, engines: int, warm_now: WarmNow | None) -> GroupCost | None:
    knobs, group = _first_group(spec, space)
    if not knobs:
        return None
    return GroupCost(knobs=knobs, start_s=_START_S, trial_s=_TRIAL_S, warm=engines - 1, kept=group, warm_now=warm_now)
