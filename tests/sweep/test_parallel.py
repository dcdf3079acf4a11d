"""Several trials at a time: in slots that come and go, whatever fails in them."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis import best
from orchestrator.engines import EngineConfig, EngineError, EngineInfo
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, write_parts
from orchestrator.sweep import SweepSpec
from orchestrator.sweep.crew import Room
from orchestrator.sweep.slot import MAX_ATTEMPTS, NO_ROOM
from orchestrator.sweep.study import TrialBook
from tests.sweep.studies import (
    journal,
    make_spec,
    new_run,
    points,
    read,
    require_no_duplicates,
    require_whole,
    run_sweep,
)

SLOTS = 3
LOST = EngineError("engine-dead", "the engine is gone", lost=True, log_path="x.log")

pytestmark = pytest.mark.timeout(60)


class SlowEngine(FaultyEngine):
    """Fault: takes its time over every block. Counts how many do so at a time."""

    lock = threading.Lock()
    running = 0
    most = 0

    def run(self, *arguments: Any, **options: Any) -> Any:
        kind = type(self)
        with kind.lock:
            kind.running += 1
            kind.most = max(kind.most, kind.running)
        time.sleep(0.004)
        try:
            return super().run(*arguments, **options)
        finally:
            with kind.lock:
                kind.running -= 1


class Engines(FaultyEngines):
    """As ``FaultyEngines``, of a kind of its own, which begins to count anew."""

    def __init__(self, *faults: Faults, kind: type[FaultyEngine] = SlowEngine) -> None:
        super().__init__(*faults)
        self.kind = type("Counted", (kind,), {"running": 0, "most": 0, "lock": threading.Lock()})
        self._faulty = faults

    def __call__(self) -> FaultyEngine:
        number = len(self.made)
        faults = self._faulty[number] if number < len(self._faulty) else None
        engine: FaultyEngine = self.kind(faults, seed=number, noise=0.005)
        self.made.append(engine)
        return engine


def fixed(slots: int) -> Room:
    return lambda there: slots


def quick_spec(**changes: Any) -> SweepSpec:
    """A small study whose points are drawn at random, which takes no time."""
    return make_spec(sampler={"kind": "random"}, **changes)


def together(engines: int) -> type[FaultyEngine]:
    barrier = threading.Barrier(engines, timeout=20)

    class Together(SlowEngine):
        """Fault: its third block goes on once so many engines are in theirs."""

        def run(self, *arguments: Any, **options: Any) -> Any:
            if self.blocks == 2:
                barrier.wait()
            return super().run(*arguments, **options)

    return Together


def rows_by_trial(run: RunFolder, phase: str = "search") -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in read(run, "blocks"):
        if row["phase"] == phase:
            found.setdefault(row["trial"], []).append(row)
    return found


def test_slots_measure_at_a_time_each_on_its_own_engine(tmp_path: Path) -> None:
    spec = make_spec(trials=12)
    run, engines, output = new_run(tmp_path / "run", spec), Engines(kind=together(SLOTS)), io.StringIO()
    run_sweep(spec, run, engines, output, room=fixed(SLOTS))
    require_whole(run, spec)
    assert len(engines.made) == SLOTS
    assert not any(engine.is_running for engine in engines.made)
    assert f"{SLOTS} trials at a time" in output.getvalue()
    # Both roles of a pair are served by one engine.
    for rows in rows_by_trial(run).values():
        assert len({row["engine_id"] for row in rows}) == 1
    assert len({row["engine_id"] for row in read(run, "trials")}) == SLOTS
    provenance = json.loads(run.provenance.read_text())
    assert sorted(engine["engine_id"] for engine in provenance["engines"]) == ["faulty-0", "faulty-1", "faulty-2"]
    answer = best(run.path)
    assert answer.decision == "winner"
    assert answer.point == {"mla_workspace_rows": 1024, "max_num_batched_tokens": 512}


@pytest.mark.parametrize(("kind", "most"), [("tpe", 4), ("random", 6)])
def test_never_more_trials_are_asked_than_the_slots_need(tmp_path: Path, kind: str, most: int) -> None:
    spec = make_spec(trials=12, sampler={"kind": kind})
    run, asked = new_run(tmp_path / "run", spec), []

    class Watching(SlowEngine):
        """Fault: none. Looks at the journal in every block."""

        def run(self, *arguments: Any, **options: Any) -> Any:
            asked.append(sum(trial.state.name == "RUNNING" for trial in journal(run)))
            return super().run(*arguments, **options)

    run_sweep(spec, run, Engines(kind=Watching), room=fixed(2))
    require_whole(run, spec)
    # Beside the one that it measures, each slot may have one whose record is being written; and one that lies ready,
    # where what was measured before does not matter.
    assert 2 <= max(asked) <= most


@pytest.mark.parametrize(("kind", "is_ahead"), [("random", True), ("tpe", False)])
def test_the_next_trial_is_asked_for_during_the_present_one_where_that_costs_the_search_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_ahead: bool
) -> None:
    one_pair = {"warmup": 0, "min_pairs": 1, "max_pairs": 1}
    spec = make_spec(trials=6, sampler={"kind": kind}, confirm={"points": 0}, blocks=one_pair)
    run, ask = new_run(tmp_path / "run", spec), TrialBook.next
    asked, found = list[Any](), list[bool]()

    def counted(self: TrialBook) -> Any:
        asked.append(ask(self))
        return asked[-1]

    class Waiting(SlowEngine):
        """Fault: the first block of a trial goes on once the next trial was asked for, if that happens."""

        def run(self, *arguments: Any, **options: Any) -> Any:
            trial, is_second = divmod(self.blocks - 1, 2)
            if trial in range(spec.trials - 1) and not is_second:
                until = time.monotonic() + (5.0 if is_ahead else 0.1)
                while len(asked) < trial + 2 and time.monotonic() < until:
                    time.sleep(0.002)
                found.append(len(asked) >= trial + 2)
            return super().run(*arguments, **options)

    monkeypatch.setattr(TrialBook, "next", counted)
    run_sweep(spec, run, Engines(kind=Waiting), room=fixed(1))
    require_whole(run, spec)
    assert found == [is_ahead] * (spec.trials - 1)


def test_a_trial_that_lay_ready_when_the_sweep_ended_is_measured_by_the_next_process(tmp_path: Path) -> None:
    spec = quick_spec(trials=6, confirm={"points": 0})
    run = new_run(tmp_path / "run", spec)
    before: list[dict[str, Any]] = []

    class Stopping(SlowEngine):
        """Fault: Ctrl-C once a trial lies ready."""

        def run(self, *arguments: Any, **options: Any) -> Any:
            until = time.monotonic() + 5
            while self.blocks == 3 and len(before) < 2 and time.monotonic() < until:
                running = [trial.params for trial in journal(run) if trial.state.name == "RUNNING"]
                # One is written knob by knob.
                before[:] = [params for params in running if params.keys() == spec.space.keys()]
            if self.blocks == 3:
                raise KeyboardInterrupt
            return super().run(*arguments, **options)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, Engines(kind=Stopping), room=fixed(1))
    assert len(before) == 2
    run_sweep(spec, run, Engines(), room=fixed(1))
    require_whole(run, spec)
    assert [points(run)[number] for number in (0, 1)] == before


def test_the_prompts_of_a_trial_depend_on_its_number_alone(tmp_path: Path) -> None:
    spec, seeds = quick_spec(trials=6), []
    for slots in (1, 3):
        run = new_run(tmp_path / str(slots), spec)
        run_sweep(spec, run, Engines(), room=fixed(slots))
        seeds.append({(row["trial"], row["pair"], row["dropped"]): row["prompts_seed"] for row in read(run, "blocks")
                      if row["phase"] == "search"})  # fmt: skip
    assert all(seeds[0][key] == seeds[1][key] for key in seeds[0].keys() & seeds[1].keys())
    assert len(seeds[0].keys() & seeds[1].keys()) >= 6 * (1 + spec.blocks.min_pairs)


def test_one_slot_in_a_thread_measures_what_the_callers_thread_does(tmp_path: Path) -> None:
    spec, told = make_spec(trials=10), []
    for name, room in (("alone", None), ("thread", fixed(1))):
        run = new_run(tmp_path / name, spec)
        run_sweep(spec, run, room=room)
        told.append([(trial.params, trial.values, trial.user_attrs) for trial in journal(run)])
    assert told[0] == told[1]


def test_with_engine_knobs_each_slot_has_a_baseline_of_its_own(tmp_path: Path) -> None:
    spec = make_spec(
        space__block_size={"scope": "engine", "values": [16, 32, 64]}, baseline={"block_size": 16}, trials=12
    )
    run, engines = new_run(tmp_path / "run", spec), Engines()
    run_sweep(spec, run, engines, room=fixed(2))
    require_whole(run, spec)
    assert not any(engine.is_running for engine in engines.made)
    baselines = Counter(row["engine_id"] for row in read(run, "blocks") if row["role"] == "baseline")
    assert len(baselines) == 2
    owner: dict[str, str] = {}
    for rows in rows_by_trial(run).values():
        (baseline,) = {row["engine_id"] for row in rows if row["role"] == "baseline"}
        for row in rows:
            # No engine serves two slots.
            assert owner.setdefault(row["engine_id"], baseline) == baseline


@settings(max_examples=8)
@given(data=st.data())
def test_whatever_fails_where_the_study_ends_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    out_of_memory = EngineError("cuda-oom", "out of memory")
    errors = st.dictionaries(st.integers(2, 9), st.sampled_from([LOST, out_of_memory]), max_size=2)
    faults = [Faults(run_errors=data.draw(errors, "errors")) for _ in range(6)]
    slots, trials = data.draw(st.integers(1, 4), "slots"), data.draw(st.integers(1, 12), "trials")
    spec = quick_spec(trials=trials)
    run, engines = new_run(tmp_path_factory.mktemp("any") / "run", spec), FaultyEngines(*faults)
    try:
        run_sweep(spec, run, engines, room=fixed(slots))
    except ChunksmithError:
        assert {row["outcome"] for row in read(run, "trials")} == {"failed"}
    require_whole(run, spec)
    assert not any(engine.is_running for engine in engines.made)


def test_a_slot_that_loses_every_engine_does_not_disturb_the_others(tmp_path: Path) -> None:
    spec = quick_spec(trials=8)
    run = new_run(tmp_path / "run", spec)
    doomed: list[dict[str, Any]] = []

    class Dying(SlowEngine):
        """Fault: dies whenever it serves one point."""

        def run(self, *arguments: Any, **options: Any) -> Any:
            with type(self).lock:
                if not doomed and self._asked["mla_workspace_rows"] is not None:
                    doomed.append(dict(self._asked))
            if dict(self._asked) in doomed:
                self.is_running = False
                raise LOST
            return super().run(*arguments, **options)

    run_sweep(spec, run, Engines(kind=Dying), room=fixed(SLOTS))
    require_whole(run, spec)
    lost = [row for row in read(run, "trials") if row["outcome"] == "lost"]
    assert [(json.loads(row["point"]), row["attempt"]) for row in lost] == [(doomed[0], MAX_ATTEMPTS - 1)]


@pytest.mark.parametrize("stop", ["in a slot", "SIGINT"])
def test_an_interrupt_ends_all_slots_and_leaves_no_engine(tmp_path: Path, stop: str) -> None:
    spec = quick_spec(trials=12)
    run = new_run(tmp_path / "run", spec)

    class Hanging(SlowEngine):
        """Fault: when all are in their sixth block, one is interrupted, and the others answer only once aborted."""

        stopping, barrier = threading.Lock(), threading.Barrier(SLOTS, timeout=20)

        def run(self, *arguments: Any, **options: Any) -> Any:
            if self.blocks < 5:
                return super().run(*arguments, **options)
            self.barrier.wait()
            if self.stopping.acquire(blocking=False):
                if stop == "in a slot":
                    raise KeyboardInterrupt
                os.kill(os.getpid(), signal.SIGINT)
            until = time.monotonic() + 20
            while self.is_running and time.monotonic() < until:
                time.sleep(0.005)
            raise LOST

    engines, output, begin = Engines(kind=Hanging), io.StringIO(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, engines, output, room=fixed(SLOTS))
    assert time.monotonic() - begin < 10
    # No engine was lost: they were stopped.
    assert "lost" not in output.getvalue()
    assert len(engines.made) == SLOTS
    assert not any(engine.is_running for engine in engines.made)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("slot-")]
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    run_sweep(spec, run, Engines(), room=fixed(SLOTS))
    require_whole(run, spec)
    assert before.items() <= {row["trial"]: row["finished_at"] for row in read(run, "trials")}.items()


def test_a_baseline_that_does_not_start_in_one_slot_ends_the_sweep(tmp_path: Path) -> None:
    spec = quick_spec(trials=12)
    run = new_run(tmp_path / "run", spec)
    refusal = Faults(start_error=EngineError("plugin-refused", "no", log_path="x.log"))
    engines = Engines(Faults(), refusal)
    with pytest.raises(ChunksmithError, match="the baseline's engine does not start: plugin-refused: no"):
        run_sweep(spec, run, engines, room=fixed(SLOTS))
    assert not any(engine.is_running for engine in engines.made)
    run_sweep(spec, run, Engines(), room=fixed(SLOTS))
    require_whole(run, spec)


def test_a_knob_without_effect_ends_all_slots_in_one_line(tmp_path: Path) -> None:
    spec = quick_spec(trials=12)
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(ChunksmithError, match="failed: knob-not-in-force"):
        run_sweep(spec, run, Engines(*[Faults(workspace_unused=True)] * 9), room=fixed(SLOTS))
    require_no_duplicates(run)


def test_a_full_disk_ends_all_slots_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.sweep import ledger

    spec = quick_spec(trials=12)
    run = new_run(tmp_path / "run", spec)
    written: list[str] = []

    def faulty_write(folder: Path, table: str, parts: Mapping[str, Sequence[Any]]) -> dict[str, Path]:
        if table == "trials":
            written.extend(parts)
            if len(written) > 4:
                raise ChunksmithError("no space")
        return write_parts(folder, table, parts)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_parts", faulty_write)
        engines = Engines()
        with pytest.raises(ChunksmithError, match="no space"):
            run_sweep(spec, run, engines, room=fixed(SLOTS))
    assert not any(engine.is_running for engine in engines.made)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert 1 <= len(before) <= 4
    run_sweep(spec, run, Engines(), room=fixed(SLOTS))
    require_whole(run, spec)
    assert before.items() <= {row["trial"]: row["finished_at"] for row in read(run, "trials")}.items()


def test_slots_come_as_there_is_room(tmp_path: Path) -> None:
    spec = quick_spec(trials=12)
    run, engines = new_run(tmp_path / "run", spec), Engines(kind=together(SLOTS))
    # One at first, and one more at every look.
    run_sweep(spec, run, engines, room=lambda there: min(there + 1, SLOTS), review_s=0.02)
    require_whole(run, spec)
    assert len(engines.made) == SLOTS
    assert not any(engine.is_running for engine in engines.made)


class NodeLeaves:
    """A cluster of three nodes, of which one leaves: its engine dies, and none starts there for want of room."""

    def __init__(self) -> None:
        self.nodes, self.lock = SLOTS, threading.Lock()
        self.starting: list[FaultyEngine] = []
        self.blocks: list[str] = []

    def room(self, there: int) -> int:
        return self.nodes

    def engine(self) -> type[FaultyEngine]:
        cluster = self

        class OnNode(SlowEngine):
            """Fault: see ``NodeLeaves``."""

            cut = False

            def start(self, config: EngineConfig) -> EngineInfo:
                with cluster.lock:
                    waits = cluster.nodes < SLOTS
                if waits:
                    cluster.starting.append(self)
                until = time.monotonic() + 20
                while waits and not self.cut and time.monotonic() < until:
                    time.sleep(0.005)
                if waits:
                    raise EngineError("hang", "no answer in phase actor-start", lost=True)
                return super().start(config)

            def abort(self) -> None:
                self.cut = True
                super().abort()

            def run(self, *arguments: Any, **options: Any) -> Any:
                with cluster.lock:
                    is_last = cluster.nodes == SLOTS and self._seed == SLOTS - 1 and self.blocks == 4
                    if is_last:
                        cluster.nodes -= 1
                if is_last:
                    self.is_running = False
                    raise LOST
                return super().run(*arguments, **options)

        return OnNode


def test_a_node_that_leaves_takes_its_slot_along_and_no_trial(tmp_path: Path) -> None:
    spec = quick_spec(trials=12)
    cluster, output = NodeLeaves(), io.StringIO()
    run, engines = new_run(tmp_path / "run", spec), Engines(kind=cluster.engine())
    run_sweep(spec, run, engines, output, room=cluster.room)
    require_whole(run, spec)
    assert {row["outcome"] for row in read(run, "trials")} == {"complete"}
    # The trial is measured in another slot, as its second attempt.
    assert [row["attempt"] for row in read(run, "trials") if row["attempt"]] == [1]
    assert len(cluster.starting) == 1
    assert f"leaves: the cluster has room for {SLOTS - 1}" in output.getvalue()
    assert not any(engine.is_running for engine in engines.made)


def no_room(slots: Callable[[int], bool], engines: list[FaultyEngine]) -> type[FaultyEngine]:
    class Crowded(SlowEngine):
        """Fault: others hold the room that it would start in."""

        def start(self, config: EngineConfig) -> EngineInfo:
            if slots(len(engines)):
                raise EngineError(NO_ROOM, "others hold the cluster", lost=True)
            return super().start(config)

    return Crowded


def test_a_slot_without_room_leaves_and_its_trial_is_not_lost(tmp_path: Path) -> None:
    spec = quick_spec(trials=12)
    run, engines, output = new_run(tmp_path / "run", spec), Engines(), io.StringIO()
    engines.kind = no_room(lambda made: made > 1, engines.made)
    run_sweep(spec, run, engines, output, room=fixed(SLOTS))
    require_whole(run, spec)
    assert {(row["outcome"], row["attempt"]) for row in read(run, "trials")} == {("complete", 0)}
    assert sum(engine.config is not None for engine in engines.made) == 1


def test_the_last_slot_waits_for_room(tmp_path: Path) -> None:
    spec = quick_spec()
    run, engines, output = new_run(tmp_path / "run", spec), Engines(), io.StringIO()
    engines.kind = no_room(lambda made: made < 5, engines.made)
    run_sweep(spec, run, engines, output, room=fixed(1))
    require_whole(run, spec)
    assert {(row["outcome"], row["attempt"]) for row in read(run, "trials")} == {("complete", 0)}
    assert output.getvalue().count("waiting for room: others hold the cluster") == 4


def test_the_finalists_are_confirmed_at_a_time(tmp_path: Path) -> None:
    spec = quick_spec(trials=6, confirm__points=3)
    run, engines = new_run(tmp_path / "run", spec), Engines()
    run_sweep(spec, run, engines, room=fixed(4))
    require_whole(run, spec)
    confirmed = rows_by_trial(run, "confirm")
    assert len(confirmed) == 3
    assert len({row["engine_id"] for rows in confirmed.values() for row in rows}) >= 2
    assert len(best(run.path).finalists) == 3
    assert len({json.dumps(point, sort_keys=True) for point in points(run).values()}) == spec.trials
