"""What slots do: measure trials until none is left, then confirm the finalists."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from threading import Lock
from typing import Final

from orchestrator.search import Point
from orchestrator.sweep.desk import Desk
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.progress import Progress, describe_interval
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.sweep.scribe import Scribe
from orchestrator.sweep.serving import TrialFailure
from orchestrator.sweep.slot import Slot, SlotRetired
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.trial import TrialBench

PATIENCE: Final = 0.01
"""A slot waits until its result was told, so that its next point is chosen with it, where that costs at most this share
of what a trial takes. Otherwise it goes on at once, and its last trial is one of those that run."""


class Search:
    """Measures trials in all slots at a time.

    Args:
        size: Gives the number of slots.
        scribe: Records what the slots have measured while they go on; None records in the slot's thread.
        is_learning: Whether a point is chosen by what was measured before. Otherwise nobody waits for what is told.
    """

    def __init__(
        self,
        desk: Desk,
        bench: TrialBench,
        progress: Progress,
        size: Callable[[], int],
        scribe: Scribe | None,
        *,
        is_learning: bool = True,
    ) -> None:
        self._desk, self._bench, self._progress, self._size, self._scribe = desk, bench, progress, size, scribe
        self._is_learning = is_learning

    def run(self, slot: Slot) -> None:
        """As in ``Work``."""
        before: Future[None] | None = None
        while not slot.is_retired and (job := self._desk.next(slot)) is not None:
            slot.label = job.label
            self._progress.begin(job.label, job.point)
            if self._scribe is not None:
                self._scribe.begin()
            begin = time.monotonic()
            try:
                measured = self._bench.measure(slot, job)
            except SlotRetired:
                self._desk.give_back(job)
                break
            took = time.monotonic() - begin
            if self._scribe is None:
                self._desk.hand_in({job: measured})
                continue
            if before is not None:
                # A slow disk holds the slots back: each has one result on its way at most.
                self._scribe.wait(before)
            before = self._scribe.hand_in(job, measured)
            if self._is_learning and (self._size() == 1 or self._scribe.takes_s <= PATIENCE * took):
                self._scribe.wait(before)
        if before is not None and self._scribe is not None:
            self._scribe.wait(before)

    def end(self) -> None:
        """As in ``Work``."""
        self._desk.end()


class Confirmation:
    """Measures the best points again, on prompts that the search has not seen, and compares their greedy tokens.

    Args:
        finalists: Points of the trials to confirm by their numbers, the best first.
    """

    def __init__(self, spec: SweepSpec, ledger: Ledger, progress: Progress, finalists: Mapping[int, Point]) -> None:
        self._spec, self._ledger, self._progress = spec, ledger, progress
        self._open = deque(
            (f"confirming trial {number}", number, point)
            for number, point in finalists.items()
            if not ledger.is_confirmed(number)
        )
        self._taking = Lock()

    @property
    def left(self) -> int:
        """How many nobody has begun."""
        return len(self._open)

    def run(self, slot: Slot) -> None:
        """As in ``Work``."""
        while not slot.is_retired:
            with self._taking:
                if not self._open:
                    return
                label, number, point = self._open.popleft()
            slot.label = label
            self._progress.begin(label, point)
            try:
                verdict = self._confirmed(slot, number, point)
            except SlotRetired:
                self._open.append((label, number, point))
                return
            self._progress.end(label, point, verdict)

    def end(self) -> None:
        """Nobody waits for another here."""

    def _confirmed(self, slot: Slot, number: int, point: Point) -> str:
        """Confirm a trial and record that; return the ratio in words, or the failure."""
        bench, plan = slot.bench, self._spec.confirm_plan()
        before: list[PlacedBlock] = []

        def measure() -> str:
            # Anew in each attempt: that one failed may show that there is no room for two.
            in_turns = replace(plan, is_one_at_a_time=plan.starts > 1 and slot.pool.at_once == 1)
            measurement, placed = bench.compare(number, "confirm", point, in_turns)
            try:
                greedy = bench.greedy(point, deployed=plan.starts > 1)
            except TrialFailure as failure:
                failure.placed = [*placed, *failure.placed]
                raise
            self._ledger.write_confirmation(number, placed, greedy)
            return describe_interval(measurement.interval)

        try:
            return slot.attempt(measure, before)[0]
        except TrialFailure as failure:
            self._ledger.write_failed_confirmation(number, before)
            return f"failed: {failure}"
