"""The sweep: ask, measure, record, tell in as many slots as there is room for; then confirm the best, and soak it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import Event, Lock

from orchestrator.analysis import best
from orchestrator.engines import Engine
from orchestrator.records import RunFolder
from orchestrator.records.store import Retrying
from orchestrator.search.fidelity.listed import ListedPoints
from orchestrator.sweep.crew import REVIEW_S, Crew, Room
from orchestrator.sweep.desk import Desk, pause, show_best
from orchestrator.sweep.ladder import Climb
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.memory import Memory
from orchestrator.sweep.pool import MakeEngine, WarmEngine
from orchestrator.sweep.progress import CONFIRM, Progress, describe
from orchestrator.sweep.proposals import Proposals, make_proposals
from orchestrator.sweep.provenance import Provenance
from orchestrator.sweep.scribe import Scribe
from orchestrator.sweep.searching import Confirmation, Search
from orchestrator.sweep.slot import Slot
from orchestrator.sweep.soak import Soak
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.study import TrialBook, open_study
from orchestrator.sweep.trial import TrialBench


class Sweep:
    """One study, from its first or its next trial to the confirmed finalists. The caller holds the run's lock.

    What is measured is on disk before it is told to Optuna, under names that the trial's number fixes: a trial that
    is measured again after a crash takes its own place.

    Args:
        engines: How many engines may be warm at a time in a slot, 1 or 2. With one, a point that needs an engine of
            its own is paired with the baseline in alternated starts.
        at_once: How many may be there in a slot for a start of a confirmation that has several, 1 or 2; None for as
            many.
        make_lab: Makes kernel labs for the rung ``lab`` of a study of another engine; None where there can be none.
        room: Says how many slots there is room for, each of which measures a trial; asked every few seconds. None is
            one slot, in which everything happens in the caller's thread, one after the other.
        review_s: How often ``room`` is asked.
    """

    def __init__(
        self,
        spec: SweepSpec,
        run: RunFolder,
        make_engine: MakeEngine,
        progress: Progress,
        *,
        engines: int = 2,
        at_once: int | None = None,
        make_lab: MakeEngine | None = None,
        room: Room | None = None,
        review_s: float = REVIEW_S,
    ) -> None:
        self._spec, self._run, self._progress, self._make_lab = spec, run, progress, make_lab
        self._trials = spec.trials
        self._base = spec.engine_config()
        baseline = spec.baseline_point()
        self._first_group = {name: baseline[name] for name in spec.search_space().names("engine")}
        self._engines, self._at_once = engines, at_once
        self._make_engine, self._making = make_engine, Lock()
        self._is_alone = room is None
        self._crew = Crew(self._slot, room, progress.say, review_s=review_s)

    def run(self) -> None:
        """Do what is left of the study. Whatever ends it, no engine is left and nothing recorded is lost.

        Raises:
            ChunksmithError: No trial gave a result, or the knobs of the space had no effect.
        """
        self._memory = Memory.open(self._run, self._spec)
        self._provenance = Provenance(self._run.provenance, self._spec)
        self._ledger = Ledger(self._spec, self._run)
        self._progress.done = len(self._ledger.trials)
        show_best(self._ledger, self._progress)
        proposals = make_proposals(
            self._spec,
            self._base,
            engines=self._engines,
            earlier=self._memory.earlier,
            warm_now=None if self._is_alone else lambda: self._desk.warm_now,
        )
        try:
            self._search(self._climbed(proposals))
            self._ledger.require_result()
            self._confirm()
            self._soak_winner()
        except BaseException:
            self._crew.discard()
            raise
        self._progress.engine_state("stopping")
        self._crew.stop()

    def _slot(self, number: int) -> Slot:
        return Slot(
            number,
            self._spec,
            self._engine,
            self._base,
            self._first_group,
            engines=self._engines,
            at_once=self._at_once,
            on_start=self._engine_started,
            say=self._progress.say,
            may_leave=lambda slot: self._crew.may_leave(slot),
        )

    def _engine(self) -> Engine:
        with self._making:
            return self._make_engine()

    def _climbed(self, proposals: Proposals) -> Proposals:
        """The points that a ladder finds worth a trial, where the spec asks for one; there is one trial for each."""
        section, slot = self._spec.fidelity, self._crew.first
        if section is None:
            return proposals
        climb = Climb(
            self._spec,
            section,
            self._run,
            bench=slot.bench,
            pool=slot.pool,
            make_lab=self._make_lab,
            on_start=partial(self._engine_started, slot),
            progress=self._progress,
            attempt=slot.attempt,
        )
        points = climb.choose(proposals.points)
        if points is None:
            return proposals
        self._trials = len(points)
        self._progress.climbed(self._trials - len(self._ledger.trials))
        return replace(proposals, points=points, sampler=ListedPoints(points, proposals.choices))

    def _search(self, proposals: Proposals) -> None:
        """Measure the trials, those first that an earlier process began."""
        directions = [one.direction for one in self._spec.all_objectives]
        study = open_study(
            self._run,
            name=self._spec.study,
            proposals=proposals,
            directions=directions,
            address=self._spec.address(),
            say=self._progress.say,
        )
        over = Event()
        retrying = Retrying(self._progress.say, sleep=partial(pause, over))
        book = TrialBook(study, proposals, self._trials, self._spec.stop, retrying)
        self._desk = Desk(
            book,
            self._ledger,
            self._provenance,
            self._progress,
            over,
            is_timed=bool(self._first_group),
        )
        bench = TrialBench(self._spec, self._base, self._memory, self._ledger)
        is_learning, scribe = self._is_learning(proposals), None
        with ExitStack() as stack:
            if not self._is_alone:
                thread = stack.enter_context(ThreadPoolExecutor(1, "scribe"))
                # Ahead only where that costs the search nothing.
                scribe = Scribe(thread, self._desk, lambda: self._crew.size, is_ahead=not is_learning)
            search = Search(self._desk, bench, self._progress, lambda: self._crew.size, scribe, is_learning=is_learning)
            self._crew.run(search, self._trials - len(self._ledger.trials))
        self._provenance.write()
        if book.ended is not None:
            self._progress.search_ended(len(self._ledger.trials), book.ended)

    def _is_learning(self, proposals: Proposals) -> bool:
        """Whether what is proposed depends on what was measured: not of a list, nor where all is drawn at random."""
        is_drawn = self._spec.sampler.kind == "random" and not self._memory.earlier
        return not (is_drawn or isinstance(proposals.sampler, ListedPoints))

    def _confirm(self) -> None:
        self._progress.phase = CONFIRM
        finalists = {number: self._ledger.trials[number].point for number in self._ledger.finalists()}
        confirmation = Confirmation(self._spec, self._ledger, self._progress, finalists)
        while confirmation.left:
            # Once as a rule. A slot that leaves puts back what it has begun, and may be the last that works.
            self._crew.run(confirmation, confirmation.left)

    def _soak_winner(self) -> None:
        """Soak the point that would be recommended; where it breaks, the next one that would be then."""
        rounds = self._spec.soak.rounds
        while rounds and (answer := best(self._run.path)).decision == "winner" and answer.soak == "not run":
            assert answer.trial is not None
            number, point, slot = answer.trial, self._ledger.trials[answer.trial].point, self._crew.alone()
            self._progress.phase = "soak"
            label = f"soaking trial {number}"
            self._progress.say(f"{label}: {describe(point)}")
            soaked = Soak(self._spec, self._base, slot.bench, slot.pool, self._progress.say).run(number, point, rounds)
            self._ledger.write_soak(number, soaked.placed, soaked.record)
            self._progress.say(f"{label}: {soaked.verdict}")

    def _engine_started(self, slot: Slot, warm: WarmEngine, warm_up_s: float) -> None:
        self._provenance.add_engine(warm, warm_up_s, write=self._is_alone)
        state = f"{warm.info.engine_id} warm after {warm.info.start_s:.1f} s"
        self._progress.engine_is_warm(state, None if self._is_alone else slot.label)
