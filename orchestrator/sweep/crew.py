"""The slots of a sweep: as many as there is room for, each with a thread of its own."""

from __future__ import annotations

import math
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Protocol

from orchestrator.sweep.slot import Slot, SlotEnded

Room = Callable[[int], int]
"""How many slots there is room for, given how many there are: fewer than there are when nodes have left."""

REVIEW_S = 5.0
"""How often the slots are fitted to the cluster."""

CROWDED_S = 60.0
"""How long no slot is added after one has found the room taken by others."""

END_S = 60.0
"""How long slots may take to end. Their threads end with the process in any case."""

_AT_A_TIME = 32
"""Engines that are stopped at the same time."""

_TURN_S = 0.0005
"""After how long a thread that computes lets another have the interpreter. By Python's own 5 ms, a slot whose block has
ended would wait for those that record others before its next one begins."""


class Work(Protocol):
    """What slots do, each in its thread."""

    def run(self, slot: Slot) -> None:
        """Go on until nothing is left, or the slot is retired."""

    def end(self) -> None:
        """Make those that wait for others in ``run`` raise SlotEnded."""


class Crew:
    """Has work done in slots. Without ``room`` there is one, and it works in the caller's thread.

    With it, slots come and go. One that waits for an engine while there are more slots than room is retired: its node
    has left. One with a warm engine has its room, and stays.

    Args:
        make_slot: Makes the slot of a number.
        say: Gets one line whenever slots come or go.
        review_s: Seconds between two looks at the room.
    """

    def __init__(
        self,
        make_slot: Callable[[int], Slot],
        room: Room | None,
        say: Callable[[str], None],
        *,
        review_s: float = REVIEW_S,
    ) -> None:
        self._make_slot, self._room, self._say, self._review_s = make_slot, room, say, review_s
        self._slots = [make_slot(0)]
        self._made = 1
        self._threads: dict[Slot, Thread] = {}
        self._ended: queue.SimpleQueue[tuple[Slot, BaseException | None]] = queue.SimpleQueue()
        self._leaving = Lock()
        self._crowded_until = -math.inf

    @property
    def first(self) -> Slot:
        """The slot that is there always."""
        return self._slots[0]

    @property
    def size(self) -> int:
        """Slots that do not leave."""
        return len(self._active())

    def run(self, work: Work, most: int) -> None:
        """Do work, in at most so many slots. Others than these stop their engines, which keep theirs afterwards.

        Raises:
            BaseException: What ended a slot, or came to this thread. No slot is working any more.
        """
        if self._room is None:
            work.run(self.first)
            return
        self._keep(max(most, 1))
        try:
            with _short_turns():
                self._run(work, most)
        except BaseException:
            self._end(work)
            raise

    def alone(self) -> Slot:
        """The first slot, after the others have stopped their engines and left."""
        self._keep(1)
        return self.first

    def stop(self) -> None:
        """Stop every engine in good order."""
        _each(lambda slot: slot.pool.stop_all(), self._slots)

    def discard(self) -> None:
        """Stop every engine at once."""
        _each(lambda slot: slot.pool.discard_all(), self._slots)

    def may_leave(self, slot: Slot) -> bool:
        """Whether a slot that finds no room may leave: not the last one. No other takes its place for a while."""
        with self._leaving:
            if self._active() == [slot]:
                return False
            slot.is_retired = True
            self._crowded_until = time.monotonic() + CROWDED_S
            return True

    def _run(self, work: Work, most: int) -> None:
        is_over = False
        self._fit(work, most)
        while self._threads:
            try:
                slot, error = self._ended.get(timeout=self._review_s)
            except queue.Empty:
                if not is_over:
                    self._fit(work, most)
                continue
            del self._threads[slot]
            if error is not None:
                raise error
            if slot.is_retired:
                self._slots.remove(slot)
            else:
                # It found nothing left to do.
                is_over = True

    def _active(self) -> list[Slot]:
        return [slot for slot in self._slots if not slot.is_retired]

    def _keep(self, most: int) -> None:
        _each(lambda slot: slot.pool.stop_all(), self._slots[most:])
        del self._slots[most:]

    def _fit(self, work: Work, most: int) -> None:
        """Bring the slots to the number that there is room for."""
        assert self._room is not None
        there = self._active()
        wanted = max(min(self._room(len(there)), most), 1)
        if time.monotonic() < self._crowded_until:
            wanted = min(wanted, len(there))
        with self._leaving:
            for slot in reversed(self._active()):
                if self.size > wanted and slot.cut():
                    self._say(f"slot {slot.number} leaves: the cluster has room for {wanted}")
        added = [self._make_slot(number) for number in range(self._made, self._made + wanted - len(there))]
        self._made += len(added)
        self._slots += added
        if added:
            self._say(f"{self.size} trials at a time")
        for slot in self._active():
            if slot not in self._threads:
                thread = Thread(target=self._live, args=(slot, work), name=f"slot-{slot.number}", daemon=True)
                self._threads[slot] = thread
                thread.start()

    def _live(self, slot: Slot, work: Work) -> None:
        error: BaseException | None = None
        try:
            work.run(slot)
            if slot.is_retired:
                slot.pool.stop_all()
        except SlotEnded:
            pass
        except BaseException as caught:  # noqa: BLE001 - it is raised again in the thread that runs the crew
            error = caught
        self._ended.put((slot, error))

    def _end(self, work: Work) -> None:
        """End all slots. Their engines are stopped under them, again and again: one may be about to start."""
        work.end()
        until = time.monotonic() + END_S
        while self._threads and time.monotonic() < until:
            _each(Slot.end, list(self._threads))
            try:
                slot, _ = self._ended.get(timeout=0.1)
            except queue.Empty:
                continue
            del self._threads[slot]


def _each(act: Callable[[Slot], None], slots: Sequence[Slot]) -> None:
    """Do something to each slot, many at a time: an engine takes a second to stop."""
    if len(slots) == 1:
        act(slots[0])
    elif slots:
        with ThreadPoolExecutor(min(len(slots), _AT_A_TIME)) as threads:
            for _ in threads.map(act, slots):
                pass


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads take turns of ``_TURN_S`` while the body runs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
