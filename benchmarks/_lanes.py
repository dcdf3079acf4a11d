"""Where the time of a run with several slots went."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Begin and end of a trial, in seconds, and the process that ran it."""

    process: object
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Seconds of a run, as means over its slots. The four parts add up to the whole.

    Attributes:
        whole_s: From the call until it returned.
        start_s: Until a slot's first trial begins.
        work_s: What the trials are meant to take: the ideal.
        between_s: From a slot's first trial to its last, all that is not work.
        end_s: From a slot's last trial to the end.
        most: Slots that had a trial.
    """

    whole_s: float
    start_s: float
    work_s: float
    between_s: float
    end_s: float
    most: int

    @property
    def overhead(self) -> float:
        """What the whole is above the ideal, as a share of it."""
        return self.whole_s / self.work_s - 1.0

    @property
    def steady(self) -> float:
        """The same of the time between first and last trials alone."""
        return self.between_s / self.work_s


def split(begin: float, end: float, spans: Sequence[Span], slots: int, trial_s: float) -> Lanes:
    """Split the time of a run.

    Args:
        begin: When it was called; ``end`` when it returned.
        spans: Of every trial.
        slots: Trials that may run at a time, each in a process that may be replaced.
        trial_s: Seconds of work in a trial.

    Raises:
        ValueError: More processes ran at a time.
    """
    lives: dict[object, tuple[float, float]] = {}
    for span in spans:
        born, died = lives.get(span.process, (span.begin, span.end))
        lives[span.process] = (min(born, span.begin), max(died, span.end))
    free: list[float] = []
    first: list[float] = []
    for started, ended in sorted(lives.values()):
        if free and free[0] <= started:
            heapq.heapreplace(free, ended)
        else:
            first.append(started)
            heapq.heappush(free, ended)
    if len(first) > slots:
        raise ValueError(f"{len(first)} processes ran at a time on {slots} slots")
    most = len(first)
    # A slot that never had a trial was starting all the time.
    first += [end] * (slots - most)
    free += [end] * (slots - most)
    work = trial_s * len(spans) / slots
    start, over = sum(first) / slots - begin, end - sum(free) / slots
    return Lanes(
        whole_s=end - begin,
        start_s=start,
        work_s=work,
        between_s=end - begin - start - over - work,
        end_s=over,
        most=most,
    )
