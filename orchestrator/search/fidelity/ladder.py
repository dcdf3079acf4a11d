"""Which points climb from one rung to the next: successive halving by rank, with several workers if there are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from orchestrator.search.fidelity.rungs import Rung, passed_on


class Job(NamedTuple):
    """Measure this point on this rung; both are indices."""

    point: int
    rung: int


class _Figure(NamedTuple):
    """A value as a loss, smaller being better, with the ends of its interval."""

    loss: float
    low: float
    high: float


@dataclass
class _Standing:
    """What happened on one rung."""

    waiting: list[int] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    figures: dict[int, _Figure] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    promoted: list[int] = field(default_factory=list)
    is_closed: bool = False

    @property
    def entered(self) -> int:
        return len(self.waiting) + len(self.pending) + len(self.figures) + len(self.failed)


class Ladder:
    """Hands out measurements, takes their values, and decides which points are measured again with more effort.

    Every point enters the lowest rung. A rung is closed when all points that entered it have ended and the rung below
    is closed. Then the best ``ceil(entered / eta)`` of its points that gave a value climb, in the order of their rank,
    but none that is surely worse than another by more than ``slack``: its interval lies beyond that one's, and
    ``slack`` is what the ranks of two rungs may differ by. So the top rung sees few points where the choice is clear.
    The best point of a rung always climbs, and a failure never does.

    Waiting for a rung to close costs one worker nothing, and makes what climbs independent of the order in which
    values come in. With ``eager``, a worker that would be idle while others measure takes a point that is among the
    best ``floor(values / eta)`` so far, as asynchronous successive halving does; that can send points up which do not
    stay among the best, but never more than ``entered / eta`` of them.

    The order of hand-outs depends on the arguments and on the values alone. Points of equal value are ranked as they
    were given.

    Sources: Karnin, Koren and Somekh, Almost optimal exploration in multi-armed bandits, ICML 2013 (successive
    halving); Li et al., A system for massively parallel hyperparameter tuning, MLSys 2020, Algorithm 2 (ASHA);
    Audibert, Bubeck and Munos, Best arm identification in multi-armed bandits, COLT 2010 (rejecting what is worse).

    Args:
        points: How many there are, at least 1.
        rungs: From cheap to dear, at least 1.
        eta: One point in so many climbs, above 1.
        direction: Whether a small or a large value is good.
        slack: Share, at least 0.
        groups: One key for each point; points of one group are handed out together, because they share an engine.
        eager: Whether an idle worker may take a point up early.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        points: int,
        rungs: Sequence[Rung],
        *,
        eta: float = 3.0,
        direction: Literal["minimize", "maximize"] = "minimize",
        slack: float = 0.05,
        groups: Sequence[Hashable] | None = None,
        eager: bool = False,
    ) -> None:
        if points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        if not rungs:
            raise ValueError("rungs is empty")
        if not (math.isfinite(eta) and eta > 1):
            raise ValueError(f"eta must be above 1 and finite, got {eta}")
        if direction not in ("minimize", "maximize"):
            raise ValueError(f"direction must be minimize or maximize, got {direction!r}")
        if not (math.isfinite(slack) and slack >= 0):
            raise ValueError(f"slack must be a number from 0 up, got {slack}")
        if groups is not None and len(groups) != points:
            raise ValueError(f"groups must hold one key for each of {points} points, got {len(groups)}")
        self._rungs, self._eta, self._minimises = tuple(rungs), eta, direction == "minimize"
        self._slack, self._groups, self._eager = slack, groups, eager
        self._standings = [_Standing() for _ in rungs]
        self._standings[0].waiting = list(range(points))
        self._group: Hashable = None

    def next(self) -> Job | None:
        """The next measurement, which is pending from now on; None when there is none now: ``is_done`` tells why."""
        self._close()
        for rung in reversed(range(len(self._rungs))):
            if self._standings[rung].waiting:
                return self._hand_out(rung)
        if self._eager:
            for rung in reversed(range(len(self._rungs) - 1)):
                if (point := self._early(rung)) is not None:
                    self._promote(rung, point)
                    return self._hand_out(rung + 1)
        return None

    def report(self, job: Job, value: float, interval: tuple[float, float] | None = None) -> None:
        """A pending measurement ended with a value.

        Args:
            value: Above 0, in a unit that is the rung's own: only values of one rung are compared.
            interval: Its lower end (from 0) and its upper end (infinity where nothing is known); None says that no
                point is surely worse or better than this one.

        Raises:
            ValueError: The job is not pending, or a number is out of range.
        """
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"value must be a finite number above 0, got {value}")
        low, high = (0.0, math.inf) if interval is None else interval
        if not 0 <= low <= value <= high:
            raise ValueError(f"interval must reach from 0 or more to at least the value {value}, got {interval}")
        standing = self._ended(job)
        if self._minimises:
            standing.figures[job.point] = _Figure(value, low, high)
        else:
            standing.figures[job.point] = _Figure(1 / value, 1 / high, 1 / low if low > 0 else math.inf)

    def fail(self, job: Job) -> None:
        """A pending measurement gave no value: the point has come as far as it goes. Raises ValueError as
        ``report``."""
        self._ended(job).failed.add(job.point)

    def lose(self, job: Job) -> None:
        """A pending measurement was lost and has to be handed out again, first of its rung. Raises ValueError as
        ``report``."""
        self._ended(job).waiting.insert(0, job.point)

    @property
    def is_done(self) -> bool:
        """Whether every measurement has ended and no point can climb any more."""
        self._close()
        return self._standings[-1].is_closed

    @property
    def pending(self) -> list[Job]:
        """Measurements that were handed out and have not ended, from the lowest rung up."""
        return [Job(point, rung) for rung, one in enumerate(self._standings) for point in sorted(one.pending)]

    def ranking(self, rung: int) -> list[int]:
        """Points that gave a value on a rung, best first."""
        figures = self._standings[rung].figures
        return sorted(figures, key=lambda point: (figures[point].loss, point))

    def promoted(self, rung: int) -> list[int]:
        """Points that climbed from a rung, in the order in which they did."""
        self._close()
        return list(self._standings[rung].promoted)

    def entered(self, rung: int) -> int:
        """Points that have come to a rung so far."""
        self._close()
        return self._standings[rung].entered

    def _close(self) -> None:
        """Close every rung that nothing more can come to, and let its best points climb."""
        for rung, standing in enumerate(self._standings):
            if standing.is_closed:
                continue
            if standing.waiting or standing.pending:
                return
            standing.is_closed = True
            if rung + 1 < len(self._rungs):
                kept = passed_on(standing.entered, self._eta, self._rungs[rung + 1])
                for point in self._able(rung)[:kept]:
                    if point not in standing.promoted:
                        self._promote(rung, point)

    def _early(self, rung: int) -> int | None:
        """A point that may climb before its rung is closed."""
        standing = self._standings[rung]
        kept = passed_on(standing.entered, self._eta, self._rungs[rung + 1])
        allowed = min(math.floor(len(standing.figures) / self._eta), kept)
        if standing.is_closed or len(standing.promoted) >= allowed:
            return None
        return next((point for point in self._able(rung)[:allowed] if point not in standing.promoted), None)

    def _able(self, rung: int) -> list[int]:
        """Points of a rung, best first, without those that are surely worse than another."""
        figures = self._standings[rung].figures
        bar = min((figure.high for figure in figures.values()), default=math.inf) * (1 + self._slack)
        return [point for point in self.ranking(rung) if figures[point].low <= bar]

    def _promote(self, rung: int, point: int) -> None:
        self._standings[rung].promoted.append(point)
        self._standings[rung + 1].waiting.append(point)

    def _hand_out(self, rung: int) -> Job:
        """The first point that waits on a rung, of the group of the last one if there is such a point."""
        standing = self._standings[rung]
        point = standing.waiting[0]
        if self._groups is not None:
            groups = self._groups
            point = next((one for one in standing.waiting if groups[one] == self._group), point)
            self._group = groups[point]
        standing.waiting.remove(point)
        standing.pending.add(point)
        return Job(point, rung)

    def _ended(self, job: Job) -> _Standing:
        if not 0 <= job.rung < len(self._rungs) or job.point not in self._standings[job.rung].pending:
            raise ValueError(f"point {job.point} is not pending on rung {job.rung}")
        standing = self._standings[job.rung]
        standing.pending.remove(job.point)
        return standing
