"""One study killed over and over, and what must be true of it in the end."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from orchestrator.analysis import best
from orchestrator.records import SCHEMAS, RunFolder
from orchestrator.records.store import RUN_ATTR, Address, Place, open_storage
from tests.soak import driver_child
from tests.soak.victims import DRIVER, ENGINE, JOURNAL_WRITER, OF_DRIVER, WORKER, WRITER, left_of

KEYS = {
    "trials": ["trial"],
    "blocks": ["trial", "phase", "block"],
    "requests": ["trial", "phase", "block", "request"],
}
ANSWER = ("decision", "trial", "point", "ratio", "ratio_low", "ratio_high", "pairs", "reason")
"""What of the answer is compared with the undisturbed run's."""

LOSSES = 1
"""Engines that are killed between two trials' beginnings; a kill at the end of a trial is the next one's loss. Three in
one trial end it as lost, by design."""

_ONCE = ("open", "start")

PHASE_TIMEOUT_S = 300.0
GONE_S = 5.0
"""How long after its driver's death anything of an engine may be there."""

_SIGNALS = {DRIVER: signal.SIGKILL, WRITER: driver_child.TEAR_FILE, JOURNAL_WRITER: driver_child.TEAR_JOURNAL}

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(driver_child.PRELOADED)


@dataclass
class Tally:
    """What the kills did.

    Attributes:
        kills: By victim and phase.
        lost: Results that were recorded and are gone or changed, or trials of the undisturbed run that are missing.
        duplicated: Rows that stand twice.
        torn: Files that cannot be read.
        running: Trials that Optuna takes for running after the end.
        left: Processes and leases that outlived a driver for too long.
        other_answers: Studies whose recommendation is not the undisturbed one's.
        studies: Studies that were ended.
        notes: A line on each fault.
    """

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    running: int = 0
    left: int = 0
    other_answers: int = 0
    studies: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.kills.values())

    @property
    def faults(self) -> dict[str, int]:
        """All counts that have to be 0."""
        names = ("lost", "duplicated", "torn", "running", "left", "other_answers")
        return {name: getattr(self, name) for name in names}

    def matrix(self) -> str:
        """Victims by phase, as text."""
        phases = [*driver_child.PHASES]
        phases += sorted({phase for _, phase in self.kills} - set(phases))
        victims = list(dict.fromkeys(victim for victim, _ in self.kills))
        lines = ["".join([f"{'killed':<14}", *(f"{phase:>9}" for phase in phases), f"{'all':>9}"])]
        for victim in victims:
            counts = [self.kills[victim, phase] for phase in phases]
            lines.append("".join([f"{victim:<14}", *(f"{count or '.':>9}" for count in counts), f"{sum(counts):>9}"]))
        ends = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.faults.items())
        return "\n".join([*lines, f"{self.total} kills in {self.studies} studies: {ends}", *self.notes])


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One kill to come.

    Attributes:
        victim: Who.
        phase: Begun how many times before, since the last kill; and how long after that, in seconds.
    """

    victim: str
    phase: str
    times: int
    after_s: float


class Study:
    """A study in a folder, driven by processes that are killed.

    Args:
        folder: Gets the run and the drivers' log.
        spec: The spec's file.
        options: Words that are added to every ``chunksmith sweep``.
        kill: Kills a victim of the run; returns whether there was one.
        stated_times: Whether the engine is the double.
    """

    def __init__(
        self,
        folder: Path,
        spec: Path,
        options: Sequence[str],
        kill: Callable[[str, Path], bool] | None = None,
        *,
        stated_times: bool = True,
    ) -> None:
        self.run, self._spec, self._options, self._kill = folder / "run", spec, options, kill
        self._log, self._stated_times = folder / "driver.log", stated_times
        self._driver: Any = None
        self._phases: Connection | None = None
        self._phase, self._losses, self._to_come = "", 0, set(_ONCE)

    def undisturbed(self) -> None:
        """Run it to its end."""
        self._start()
        self._until_end()

    def killed(self, plans: Sequence[Plan], tally: Tally) -> None:
        """Carry out as many plans as the study lasts for, in about their order, and let it end."""
        recorded: Mapping[int, Any] = {}
        waiting = list(plans)
        while plan := next((one for one in waiting if self._may_come(one)), None):
            waiting.remove(plan)
            if self._driver is None:
                self._start()
            if not self._reach(plan):
                break
            if plan.victim not in OF_DRIVER:
                assert self._kill is not None
                if self._kill(plan.victim, self.run):
                    tally.kills[plan.victim, self._phase] += 1
                    self._losses += 1
                    self._to_come.add("start")
                continue
            os.kill(self._driver.pid, _SIGNALS[plan.victim])
            if not self._died():
                break  # the writer had nothing left to write
            tally.kills[plan.victim, self._phase] += 1
            self._require_gone(tally)
            recorded = self._compared(recorded, tally)
        if self._driver is None:
            self._start()
        self._until_end()
        self._compared(recorded, tally)
        self._require_gone(tally)
        tally.studies += 1

    def _start(self) -> None:
        words = ["sweep", "--run", str(self.run), *self._options]
        words += ["--resume"] if self.run.exists() else [str(self._spec)]
        self._phases, theirs = _CONTEXT.Pipe(duplex=False)
        self._driver = _CONTEXT.Process(
            target=driver_child.drive, args=(words, dict(os.environ), self._log, theirs, self._stated_times)
        )
        self._driver.start()
        theirs.close()
        self._losses, self._phase, self._to_come = 0, "join", set(_ONCE)

    def _may_come(self, plan: Plan) -> bool:
        """Whether the plan's moment lies ahead as things are: a driver reads the study once, and an engine starts once
        unless it is lost."""
        if self._driver is None or plan.phase not in _ONCE:
            return True
        return plan.phase in self._to_come and (plan.victim in OF_DRIVER or self._losses < LOSSES)

    def _reach(self, plan: Plan) -> bool:
        """Wait for the plan's moment; False when the driver has ended by itself before."""
        left = plan.times
        while left > 0:
            if not self._next_phase():
                return False
            may = plan.victim in OF_DRIVER or self._losses < LOSSES
            left -= may and self._phase == plan.phase
        deadline = time.monotonic() + plan.after_s
        assert self._phases is not None
        while (rest := deadline - time.monotonic()) > 0 and self._phases.poll(rest):
            if not self._next_phase():
                return False
        return True

    def _died(self) -> bool:
        """Wait for the end of a driver that was sent a signal; whether that killed it."""
        while self._next_phase():
            pass
        self._driver.join(PHASE_TIMEOUT_S)
        if self._driver.exitcode != -signal.SIGKILL:
            return False
        self._ended()
        return True

    def _next_phase(self) -> bool:
        """Wait for the next phase to begin; False when there is none any more."""
        assert self._phases is not None
        assert self._phases.poll(PHASE_TIMEOUT_S), f"no phase after {self._phase}:\n{self._log.read_text()[-4000:]}"
        try:
            self._phase = self._phases.recv_bytes().decode()
        except EOFError:
            return False
        self._to_come.discard(self._phase)
        if self._phase in ("ask", "confirm"):
            self._losses = 0
        return True

    def _until_end(self) -> None:
        while self._next_phase():
            pass
        self._driver.join(PHASE_TIMEOUT_S)
        assert self._driver.exitcode == 0, self._log.read_text()[-4000:]
        self._ended()

    def _ended(self) -> None:
        assert self._phases is not None
        self._phases.close()
        self._driver = self._phases = None

    def _require_gone(self, tally: Tally) -> None:
        deadline = time.monotonic() + GONE_S
        while left_of(self.run) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = left_of(self.run)
        if left:
            tally.notes.append(f"{self.run}: left after {GONE_S:.0f} s: {left}")
        tally.left += len(left)

    def _compared(self, before: Mapping[int, Any], tally: Tally) -> Mapping[int, Any]:
        """Count what is torn, duplicated or lost now; return what is recorded."""
        tables = {table: self._table(table, tally) for table in SCHEMAS}
        for table, frame in tables.items():
            if len(frame):
                tally.duplicated += int(frame.duplicated(KEYS[table]).sum())
        now = results_in(tables["trials"])
        for trial, result in before.items():
            if now.get(trial) != result:
                tally.lost += 1
                tally.notes.append(f"{self.run}: trial {trial} was {result}, is {now.get(trial)}")
        return now

    def _table(self, table: str, tally: Tally) -> pd.DataFrame:
        for path in (self.run / table).glob("[!.]*.parquet"):
            try:
                pq.read_metadata(path)
            except OSError:
                tally.torn += 1
        return pd.read_parquet(self.run / table) if (self.run / table).is_dir() else pd.DataFrame()


def compare(run: Path, reference: Path, tally: Tally) -> None:
    """Count what is different in the end from a run that was left alone."""
    ours, theirs = (results_in(pd.read_parquet(path / "trials")) for path in (run, reference))
    for trial in ours.keys() | theirs.keys():
        if ours.get(trial) != theirs.get(trial):
            tally.lost += 1
            tally.notes.append(f"{run}: trial {trial} is {ours.get(trial)}, has to be {theirs.get(trial)}")
    for table in ("blocks", "requests"):
        # What was served in vain stands there too: the undisturbed run's rows are the least.
        ours_of, theirs_of = (_measured(path, table) for path in (run, reference))
        tally.lost += len(theirs_of - ours_of)
    answers = [{name: getattr(best(path), name) for name in ANSWER} for path in (run, reference)]
    if answers[0] != answers[1]:
        tally.notes.append(f"{run}: another answer: {answers}")
        tally.other_answers += 1


def check_end(run: Path, trials: int, tally: Tally) -> None:
    """Count what is wrong with a run that has ended: each trial has to be recorded once, and told with its result."""
    recorded = results_in(pd.read_parquet(run / "trials"))
    tally.lost += len(set(range(trials)) - recorded.keys())
    tally.torn += len(list(run.rglob(".*.tmp")))
    place = Place.read(RunFolder(run))
    storage = open_storage(Address.parse(place.address), RunFolder(run).journal)
    own = [one for one in storage.get_all_studies() if place.run in ("", one.user_attrs.get(RUN_ATTR))]
    told = [trial for one in own for trial in storage.get_all_trials(one._study_id)]
    values = {trial.number: trial.value for trial in told}
    tally.running += sum(not trial.state.is_finished() for trial in told)
    tally.lost += sum(values.get(trial) != ratio for trial, (_, _, ratio) in recorded.items())
    tally.duplicated += len(told) - len(values) + len(values.keys() - recorded.keys())


def _measured(run: Path, table: str) -> set[tuple[object, ...]]:
    """Trials and phases with their rows that count."""
    frame = pd.read_parquet(run / table)
    return set(frame[["trial", "phase"]].itertuples(index=False, name=None))


def results_in(trials: pd.DataFrame) -> dict[int, tuple[str, str, float | None]]:
    """Point, outcome and ratio of every recorded trial."""
    if not len(trials):
        return {}
    rows = trials[["trial", "point", "outcome", "ratio"]].itertuples(index=False)
    return {
        int(trial): (json.dumps(json.loads(point), sort_keys=True), outcome, None if math.isnan(ratio) else ratio)
        for trial, point, outcome, ratio in rows
    }


def plans(rng: random.Random, victims: Mapping[str, float], scale_s: Mapping[str, float], number: int) -> list[Plan]:
    """So many kills, drawn from a seed: victims by their weights, in every phase in which they can be met. Those that
    wait for a confirmation, which comes last, come last."""
    drawn = []
    for victim in rng.choices(list(victims), list(victims.values()), k=number):
        phase = rng.choice(_PHASES_OF.get(victim, ("block", "block", "start")))
        times = rng.randint(1, 4) if phase == "block" else 1
        drawn.append(Plan(victim=victim, phase=phase, times=times, after_s=rng.uniform(0.0, scale_s[phase])))
    return sorted(drawn, key=lambda plan: plan.phase == "confirm")


_PHASES_OF = {
    DRIVER: ("open", "ask", "start", "block", "record", "tell", "confirm"),
    WRITER: ("open", "ask", "block", "record", "confirm"),
    JOURNAL_WRITER: ("open", "ask", "block", "record", "tell"),
    WORKER: ("start",),
    ENGINE: ("block",),
}
