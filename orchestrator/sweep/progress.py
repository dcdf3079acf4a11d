"""What a sweep shows while it runs: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.measurement.stats import RatioInterval
from orchestrator.search import Point

_MOST_SHOWN = 8
"""Lines of what is being measured, on a terminal."""

CONFIRM: Final = "confirm"
"""The phase in which the finalists are measured again."""


@dataclass
class Progress:
    """State of the display. ``total`` counts the trials of the search; confirmations come on top. Trials are called by
    the numbers of the records, which begin at 0; only counts begin at 1.

    Use it as a context manager. Every method may be called at any time, and by any thread.
    """

    console: Console
    total: int
    finalists: int
    done: int = 0
    phase: str = "search"
    engine: str = "none"
    best: str = "none yet"
    _current: dict[str, str] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)
    _spent_s: dict[str, list[float]] = field(default_factory=dict)
    _most: int = 1
    _live: Live | None = None
    _changing: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(self._render(), console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(Text(text), soft_wrap=True)

    def engine_state(self, state: str) -> None:
        """What an engine is doing, for instance ``starting engine-1``."""
        with self._changing:
            if state != self.engine:
                self.engine = state
                self._changed(f"engine: {state}")

    def engine_is_warm(self, state: str, label: str | None = None) -> None:
        """An engine has started, for the trial of that label. Its start is left out of the time that a trial takes, and
        so of the time left; every confirmation may have starts of its own. Without a label there is one trial at a
        time."""
        with self._changing:
            if self.phase != CONFIRM:
                for one in self._begun if label is None else [label]:
                    self._begun[one] = time.monotonic()
            self.engine_state(state)

    def begin(self, label: str, point: Point) -> None:
        """A trial or a confirmation begins, or begins again. Labels of those that run at a time differ."""
        with self._changing:
            self._begun[label] = time.monotonic()
            self._current[label] = f"{label}: {describe(point)}"
            self._most = max(self._most, len(self._current))
            self._changed(None)

    def end(self, label: str, point: Point, verdict: str) -> None:
        """It ended. ``verdict`` is the ratio in words, or the failure."""
        with self._changing:
            seconds = time.monotonic() - self._begun.pop(label)
            del self._current[label]
            self._spent_s.setdefault(self.phase, []).append(seconds)
            self.done += 1
            left = f", {duration(self.left_s())} left" if self.left_s() else ""
            count = f"{self.done} of {self.total + self.finalists}"
            self.say(f"{label} ({count}): {describe(point)}: {verdict} ({seconds:.1f} s{left})")
            self._changed(None)

    def best_so_far(self, point: Point, interval: RatioInterval) -> None:
        """The best point of the trials so far; a line of its own whenever it changes."""
        best = f"{describe_interval(interval)} at {describe(point)}"
        with self._changing:
            if best != self.best:
                self.best = best
                self._changed(f"best so far: {best}")

    def climb(self, points: int) -> None:
        """So many short measurements come before the trials."""
        self.phase, self.total = "ladder", self.total + points
        self._changed(None)

    def climbed(self, trials: int) -> None:
        """A ladder has ended; so many points get a trial."""
        self.phase, self.total = "search", self.done + trials
        self._changed(None)

    def search_ended(self, trials: int, why: str) -> None:
        """The search ended before its last trial."""
        self.say(f"search ended after {trials} of {self.total} trials: {why}")
        self.total = trials
        self._changed(None)

    def left_s(self) -> float:
        """Seconds that the rest will take, if it goes on as it did; 0 before anything ended. Until a confirmation has
        ended, one is taken to be as long as a trial."""
        spent = self._spent_s
        every = [seconds for of_phase in spent.values() for seconds in of_phase]
        if not every:
            return 0.0
        trials = max(self.total - self.done, 0)
        confirmations = max(self.total + self.finalists - self.done, 0) - trials
        return (trials * fmean(every) + confirmations * fmean(spent.get(CONFIRM, every))) / self._most

    def _changed(self, line: str | None) -> None:
        if self._live is not None:
            self._live.update(self._render())
        elif line is not None:
            self.say(line)

    def _render(self) -> Any:
        table = Table.grid(padding=(0, 2))
        table.add_row("done", f"{self.done} of {self.total} trials and {self.finalists} confirmations")
        running = list(self._current.values())
        more = [f"and {len(running) - _MOST_SHOWN} more"] if len(running) > _MOST_SHOWN else []
        table.add_row("now", "\n".join([*running[:_MOST_SHOWN], *more]) or "-")
        table.add_row("best so far", self.best)
        table.add_row("engine", self.engine)
        table.add_row("time left", duration(self.left_s()) if self.left_s() else "-")
        return Group(table)


def describe(point: Point) -> str:
    """A point as one line of text."""
    return ", ".join(f"{name}={'default' if value is None else value}" for name, value in point.items())


def describe_interval(interval: RatioInterval) -> str:
    """A ratio with its interval, for instance ``0.71 (0.69 to 0.73)``."""
    if interval.low <= 0:
        return f"{interval.ratio:.3f} (too few pairs for an interval)"
    return f"{interval.ratio:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def duration(seconds: float) -> str:
    """Seconds as ``1 h 2 min``, ``3 min`` or ``20 s``."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{round(seconds)} s"
