"""What a trial costs in seconds: more where no engine of its group is warm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.portfolio.features import Floats, Ints, Mask, Points, Value


@dataclass(frozen=True, kw_only=True)
class GroupCost:
    """Points that agree in some knobs share an engine; another engine has to be started first.

    Attributes:
        knobs: Those that an engine is started with.
        start_s: Seconds of an engine start, at least 0.
        trial_s: Seconds of a trial in a warm engine, more than 0.
        warm: How many engines stay warm: those of the groups asked for last. At least 1, or 0 where one is kept.
        kept: Values of ``knobs`` whose engine is warm all the time, beside those; None when there is none.
        warm_now: Where trials run in several places, says which values of ``knobs`` have a warm engine in the place
            that the next one goes to; what was asked for last does not count then.
    """

    knobs: Sequence[str]
    start_s: float
    trial_s: float
    warm: int = 1
    kept: Mapping[str, Value] | None = None
    warm_now: Callable[[], Sequence[Mapping[str, Value]]] | None = None

    def __post_init__(self) -> None:
        if not (self.start_s >= 0 and self.trial_s > 0 and self.warm >= (self.kept is None)):
            raise ValueError(f"start_s >= 0, trial_s > 0 and a warm engine are needed, got {self}")


class GroupCosts:
    """Seconds of every point, given what was asked for before."""

    def __init__(self, points: Points, cost: GroupCost) -> None:
        missing = [name for name in cost.knobs if name not in points.names]
        if missing:
            raise ValueError(f"{missing[0]} is not a knob of the points ({', '.join(points.names)})")
        columns = [points.names.index(name) for name in cost.knobs]
        self._points, self._cost = points, cost
        self._groups = np.unique(points.codes[:, columns], axis=0, return_inverse=True)[1].reshape(-1)
        self._is_kept = np.zeros(points.size, dtype=bool) if cost.kept is None else self._of(cost.kept)

    def log_ratio(self, asked: Ints, start_s: float | None = None, trial_s: float | None = None) -> Floats:
        """Logarithm of every point's cost over that of one whose engine is warm.

        Args:
            asked: Rows of all trials in the order of their numbers.
            start_s: What starts really took, where that is known; likewise trial_s.
        """
        start_s = self._cost.start_s if start_s is None else start_s
        trial_s = self._cost.trial_s if trial_s is None else trial_s
        is_warm = self._is_kept | (self._asked_last(asked) if self._cost.warm_now is None else self._named())
        return np.where(is_warm, 0.0, np.log1p(start_s / trial_s))

    def _asked_last(self, asked: Ints) -> Mask:
        warm: list[int] = []
        for row in asked[::-1]:
            if len(warm) == self._cost.warm:
                break
            group = int(self._groups[row])
            if group not in warm and not self._is_kept[row]:
                warm.append(group)
        return np.isin(self._groups, warm)

    def _named(self) -> Mask:
        assert self._cost.warm_now is not None
        is_warm = np.zeros(self._points.size, dtype=bool)
        for group in self._cost.warm_now():
            is_warm |= self._of(group)
        return is_warm

    def _of(self, group: Mapping[str, Value]) -> Mask:
        """Points of a group."""
        is_of = np.ones(self._points.size, dtype=bool)
        for name, value in group.items():
            is_of &= self._points.has(self._points.names.index(name), value)
        return is_of
