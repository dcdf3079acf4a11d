"""A place where trials are measured: its own warm engines, and how it ends or leaves from outside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from orchestrator.engines import Engine, EngineConfig
from orchestrator.search import Point
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.rows import PlacedBlock, as_dropped
from orchestrator.sweep.serving import TrialFailure
from orchestrator.sweep.spec import SweepSpec

T = TypeVar("T")

MAX_ATTEMPTS = 3
"""How often a trial is begun whose engine is lost under it."""

_KEPT: Final = 8
"""Engines that a slot can still stop: two, and two that start, each for the second or third time."""

NO_ROOM: Final = "no-room"
"""Class of a start for which the cluster had no room at the time. No engine was lost by it."""


class SlotEnded(BaseException):
    """Unwinds what a slot is doing, because the sweep ends. It is no error, and nothing is to be made of it."""


class SlotRetired(Exception):
    """The slot leaves: what it was measuring is for another to measure.

    Attributes:
        made: Attempts that were made at it.
    """

    def __init__(self, made: int) -> None:
        super().__init__(f"the slot leaves after {made} attempts")
        self.made = made


class Slot:
    """A pool of warm engines with its own baseline's, and a bench on it: the two roles of a pair meet in one slot.

    One thread measures in it. ``end`` and ``cut`` are for others, at any moment.

    Args:
        first: Group of the baseline.
        engines: How many engines may be warm at a time, 1 or 2.
        at_once: How many may be there for a start of a confirmation, 1 or 2; None for as many.
        on_start: Called with the slot, an engine that has started in it, and the seconds of its first block.
        say: Gets one line whenever an engine was lost.
        may_leave: Asked when there is no room for an engine. True if others go on without this slot.

    Attributes:
        label: What it measures now, in words.
        starting_s: Seconds of engine starts; whoever measures sets it back.
        is_retired: Whether it leaves once what it is doing has ended.
    """

    def __init__(
        self,
        number: int,
        spec: SweepSpec,
        make_engine: MakeEngine,
        base: EngineConfig,
        first: Point,
        *,
        engines: int,
        at_once: int | None = None,
        on_start: Callable[[Slot, WarmEngine, float], None],
        say: Callable[[str], None],
        may_leave: Callable[[Slot], bool],
    ) -> None:
        self.number, self.label, self.starting_s, self.is_retired = number, "", 0.0, False
        self._make_engine, self._on_start, self._say, self._may_leave = make_engine, on_start, say, may_leave
        # The pool holds and starts no more than these: it stops an engine before it starts one too many.
        self._latest: deque[Engine] = deque(maxlen=_KEPT)
        self._starting: list[Engine] = []
        self._is_ended = False
        self.pool = EnginePool(self._make, base, first, capacity=engines, at_once=at_once)
        self.bench = Bench(spec, self.pool, self._started)

    def attempt(self, measure: Callable[[], T], before: list[PlacedBlock], made: int = 0) -> tuple[T, int]:
        """Measure, again if an engine is lost under it; return what it gave and the number of attempts before.

        Args:
            before: Gets the blocks of the attempts that failed, none of which counts.
            made: Attempts before this call.

        Raises:
            TrialFailure: It failed, or the engine of the last attempt was lost too.
            SlotRetired: The slot has no room any more.
            SlotEnded: The sweep ends.
        """
        while True:
            self._starting = []
            try:
                return measure(), made
            except TrialFailure as error:
                failure = error
            if self._is_ended:
                raise SlotEnded from failure
            before.extend(as_dropped(failure.placed))
            if failure.label == NO_ROOM and not self.is_retired:
                self.is_retired = self._may_leave(self)
                if not self.is_retired:
                    self._say(f"waiting for room: {failure.detail}")
                    continue
            if self.is_retired:
                raise SlotRetired(made) from failure
            failure.attempt = made
            if not failure.lost:
                raise failure
            made += 1
            self._say(f"lost: {failure}; attempt {made} of {MAX_ATTEMPTS}")
            if made == MAX_ATTEMPTS:
                raise failure

    def cut(self) -> bool:
        """Retire the slot if it is waiting for engines to start, and stop these starts; else do nothing. Whether it
        did."""
        starting = list(self._starting)
        if not starting or self.is_retired:
            return False
        self.is_retired = True
        for engine in starting:
            engine.abort()
        return True

    def end(self) -> None:
        """Stop its engines at once and let it start none; what its thread is doing fails. May be repeated: an engine
        that is about to start cannot be stopped yet."""
        self._is_ended = True
        for engine in list(self._latest):
            engine.abort()

    def _make(self) -> Engine:
        if self._is_ended:
            raise SlotEnded
        engine = self._make_engine()
        self._latest.append(engine)
        self._starting.append(engine)
        return engine

    def _started(self, warm: WarmEngine, warm_up_s: float) -> None:
        # Without those whose start failed, before another try or beside it.
        cold = [engine for engine in self.pool.engines if engine is not warm.engine]
        self._starting = [engine for engine in self._starting if engine in cold]
        self.starting_s += warm.info.start_s + warm_up_s
        self._on_start(self, warm, warm_up_s)
