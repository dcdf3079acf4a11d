"""The desk where slots get their trials and hand in what they measured: one ask, one record, one tell at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Condition, Event, Lock

from orchestrator.search import Point
from orchestrator.sweep.ledger import Ledger, TrialRecord
from orchestrator.sweep.progress import Progress, describe_interval
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.slot import Slot, SlotEnded
from orchestrator.sweep.study import Told, TrialBook
from orchestrator.sweep.trial import BASELINE_FAILED, Job, Measured


class Desk:
    """Hands out trials and takes their results, in any number of threads.

    Trials that lie ready come first: those that other slots gave back, and those that were asked for ahead. Otherwise
    one is asked for when a slot is there for it. What was measured is recorded before it is told to Optuna.

    A trial that lies ready is begun in the study, and is left so when the sweep ends before a slot has taken it: the
    next process that goes on with the study finds it there.

    Args:
        over: Set when nothing more is handed out, for what waits with ``pause``.
        is_timed: Whether the sampler is to know how long trials and engine starts take.
    """

    def __init__(
        self,
        book: TrialBook,
        ledger: Ledger,
        provenance: Provenance,
        progress: Progress,
        over: Event,
        *,
        is_timed: bool,
    ) -> None:
        self._over = over
        self._book, self._ledger, self._provenance, self._progress = book, ledger, provenance, progress
        self._is_timed = is_timed
        # Whoever is at the book may wait for the study's storage; what is ready is taken meanwhile.
        self._at_book, self._changed = Lock(), Condition()
        self._ready: deque[Job] = deque()
        self._in_hand, self._tells, self._coming = 0, 0, 0
        self._asking: Slot | None = None
        self._trouble: BaseException | None = None

    @property
    def warm_now(self) -> Sequence[Point]:
        """Groups of the warm engines in the slot that asks, for the sampler."""
        return self._asking.pool.groups if self._asking is not None else []

    def next(self, slot: Slot) -> Job | None:
        """The next trial for a slot; None when there is none left, and none is being measured, which could come back.

        Raises:
            SlotEnded: The sweep ends.
            BaseException: What kept a result from being recorded or told, whoever handed it in.
        """
        while True:
            with self._changed:
                if self._trouble is not None:
                    raise self._trouble
                if self._ready:
                    self._in_hand += 1
                    return self._ready.popleft()
                tells = self._tells
                self._coming += 1
            with self._at_book:
                self._asking = slot
                try:
                    # One that was asked for ahead while this slot waited for the book will do.
                    job = None if self._ready else self._open()
                finally:
                    with self._changed:
                        self._coming -= 1
                with self._changed:
                    if job is not None:
                        self._in_hand += 1
                        return job
                    if self._in_hand == 0 and not self._ready and self._tells == tells:
                        return None
            with self._changed:
                # A tell since then may have made another trial possible.
                while not self._ready and self._trouble is None and self._tells == tells:
                    self._changed.wait()

    def prepare(self, wanted: int) -> bool:
        """Ask ahead until so many trials lie ready, as far as there are any, and no slot waits for its own. Whether so
        many do.

        Raises:
            BaseException: What kept it from that, as ``next`` raises it from now on.
        """
        try:
            while self._trouble is None and not self._coming and len(self._ready) < wanted:
                with self._at_book:
                    if (job := self._open()) is None:
                        break
                    with self._changed:
                        self._ready.append(job)
                        self._changed.notify()
        except BaseException as error:
            self._end(error)
            raise
        return len(self._ready) >= wanted

    def hand_in(self, ended: Mapping[Job, Measured]) -> None:
        """Record trials, then tell them. For one thread at a time.

        Raises:
            ChunksmithError: They could not be recorded, or no other trial can fare better than one of them.
        """
        try:
            self._provenance.write()
            self._ledger.write_trials([(one.result, one.placed) for one in ended.values()])
            for job, measured in ended.items():
                self._progress.end(job.label, job.point, _verdict(self._ledger.trials[job.number]))
                # Between two tells others may ask.
                with self._at_book:
                    self._tell(job.number)
                with self._changed:
                    self._in_hand -= 1
                    self._tells += 1
                    if self._in_hand:
                        # It made at most one more trial possible.
                        self._changed.notify()
                    else:
                        self._changed.notify_all()
                if measured.refusal is not None:
                    raise measured.refusal
        except BaseException as error:
            self._end(error)
            raise

    def give_back(self, job: Job) -> None:
        """A slot leaves; another is to measure its trial."""
        with self._changed:
            self._ready.appendleft(job)
            self._in_hand -= 1
            self._changed.notify()

    def end(self) -> None:
        """Hand out nothing more: who waits for a trial, or comes for one, gets SlotEnded."""
        self._end(SlotEnded())

    def _end(self, trouble: BaseException) -> None:
        # First of all: whoever waits for the study's storage does so with the lock.
        self._over.set()
        with self._changed:
            self._trouble = self._trouble or trouble
            self._changed.notify_all()

    def _open(self) -> Job | None:
        while (asked := self._book.next()) is not None:
            number, point = asked
            if number not in self._ledger.trials:
                return Job(number=number, point=point, label=f"trial {number}")
            # A process that died before it could tell has left the record: the trial is not measured again.
            self._tell(number)
        return None

    def _tell(self, number: int) -> None:
        self._book.tell(number, self._told(self._ledger.trials[number]))
        show_best(self._ledger, self._progress)

    def _told(self, trial: TrialRecord) -> Told:
        # Seconds decide where engines are chosen. Tenths: what matters is their scale, and a repeat is to agree.
        is_timed = bool(trial.ratios and self._is_timed and trial.measuring_s)
        says_nothing = trial.outcome in ("complete", "lost") or trial.label == BASELINE_FAILED
        return Told(
            ratios=trial.ratios,
            log_variance=trial.log_variance,
            broken=None if says_nothing else trial.label,
            trial_s=max(round(trial.measuring_s, 1), 0.1) if is_timed else None,
            start_s=round(trial.starting_s, 1) if is_timed and trial.starting_s else None,
        )


def _verdict(trial: TrialRecord) -> str:
    if trial.interval is None:
        return f"{trial.outcome}: {trial.failure}"
    known = f", from {trial.reused_from}" if trial.reused_from else ""
    return f"{describe_interval(trial.interval)} of the baseline, {trial.interval.pairs} pairs{known}"


def pause(over: Event, seconds: float) -> None:
    """Wait, for instance until a storage is tried again. Raises SlotEnded at once when the desk ends meanwhile."""
    if over.wait(seconds):
        raise SlotEnded


def show_best(ledger: Ledger, progress: Progress) -> None:
    """Show the best point so far, if there is one."""
    best = ledger.best
    if best is not None and best.interval is not None:
        progress.best_so_far(best.point, best.interval)
