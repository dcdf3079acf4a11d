"""What slots do: measure trials until none is left, then confirm the finalists."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Final

from orchestrator.search import Point
from orchestrator.sweep.desk import Desk
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.progress import Progress, describe_interval
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.sweep.serving import TrialFailure
from orchestrator.sweep.slot import Slot, SlotRetired
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.trial import Job, Measured, TrialBench

PATIENCE: Final = 0.01
"""A slot waits until its result was told, so that its next point is chosen with it, where that costs at most this share
of what a trial takes. Otherwise it goes on at once, and its last trial is one of those that run."""


class Search:
    """Measures trials in all slots at a time.

    Args:
        size: Gives the number of slots.
        scribe: One thread, which records what the slots have measured while they go on, all that has come together at a
            time; None records in the slot's.
    """

    def __init__(
        self, desk: Desk, bench: TrialBench, progress: Progress, size: Callable[[], int], scribe: Executor | None
    ) -> None:
        self._desk, self._bench, self._progress, self._size, self._scribe = desk, bench, progress, size, scribe
        self._ended: deque[tuple[Job, Measured, float]] = deque()
        self._handing_in_s, self._rests_until = 0.0, 0.0

    def run(self, slot: Slot) -> None:
        """As in ``Work``."""
        before: Future[None] | None = None
        while not slot.is_retired and (job := self._desk.next(slot)) is not None:
            slot.label = job.label
            self._progress.begin(job.label, job.point)
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
                before.result()
            self._ended.append((job, measured, time.monotonic()))
            before = self._scribe.submit(self._hand_in)
            if self._size() == 1 or self._handing_in_s <= PATIENCE * took:
                before.result()
        if before is not None:
            before.result()

    def end(self) -> None:
        """As in ``Work``."""
        self._desk.end()

    def _hand_in(self) -> None:
        """Hand in all that has come together. What is not here any more was handed in with what came before.

        Half of the time is left to the slots, which share the interpreter: what comes meanwhile costs little more.
        """
        if self._size() > 1:
            time.sleep(max(self._rests_until - time.monotonic(), 0.0))
        begun = time.monotonic()
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        if ended:
            self._desk.hand_in({job: measured for job, measured, _ in ended})
            self._rests_until = 2 * time.monotonic() - begun
        for _, _, begin in ended:
            self._handing_in_s += 0.2 * (time.monotonic() - begin - self._handing_in_s)


class Confirmation:
    """Measures the best points again, on prompts that the search has not seen, and compares their greedy tokens.

    Args:
        finalists: Points of the trials to confirm by their numbers, the best first.
    """

    def __init__(self, spec: SweepSpec, ledger: Ledger, progress: Progress, finalists: Mapping[int, Point]) -> None:
        self._spec, self._ledger, self._progress = spec, ledger, progress
        self._open = deque(
            (f"confirming {rank} of {spec.confirm.points}", number, point)
            for rank, (number, point) in enumerate(finalists.items(), 1)
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
            measurement, placed = bench.compare(number, "confirm", point, plan)
            self._ledger.write_confirmation(number, placed, bench.greedy(point))
            return describe_interval(measurement.interval)

        try:
            return slot.attempt(measure, before)[0]
        except TrialFailure as failure:
            self._ledger.write_failed_confirmation(number, before)
            return f"failed: {failure}"
