"""A study that is stopped somewhere ends, once resumed, as one that was never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.engines import EngineError
from orchestrator.engines.faulty import Faults, FaultyEngines
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, write_parts, write_rows
from orchestrator.sweep.study import Told, TrialBook
from tests.records.rows import plain_row
from tests.sweep.studies import (
    journal,
    make_spec,
    new_run,
    points,
    read,
    read_spec,
    require_no_duplicates,
    require_whole,
    run_sweep,
)

ROOT = Path(__file__).resolve().parents[2]
KILLS = 12


def blocks_of(run: RunFolder) -> dict[tuple[int, str], int]:
    """Engine blocks behind each trial and phase, by their rows."""
    found: dict[tuple[int, str], int] = {}
    for row in read(run, "blocks"):
        found[row["trial"], row["phase"]] = found.get((row["trial"], row["phase"]), 0) + 1
    return found


@pytest.mark.parametrize("seed", range(6))
def test_stopped_at_some_block_and_resumed(tmp_path: Path, seed: int) -> None:
    spec = make_spec(trials=8)
    undisturbed = new_run(tmp_path / "undisturbed", spec)
    run_sweep(spec, undisturbed)

    run, position = new_run(tmp_path / "run", spec), random.Random(seed).randrange(1, 50)
    engines = FaultyEngines(Faults(run_errors={position: KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, engines)
    assert not engines.made[0].is_running
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}

    run_sweep(spec, run)
    require_whole(run, spec)
    after = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert before.items() <= after.items()
    assert len({json.dumps(point, sort_keys=True) for point in points(run).values()}) == spec.trials
    # The first proposals do not depend on what was measured.
    startup = range(6)
    assert [points(run)[number] for number in startup] == [points(undisturbed)[number] for number in startup]


def test_a_resumed_trial_keeps_the_point_that_it_was_handed(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, FaultyEngines(Faults(run_errors={4: KeyboardInterrupt()})))
    running = [trial for trial in journal(run) if trial.state.name == "RUNNING"]
    assert [trial.number for trial in running] == [0]
    run_sweep(spec, run)
    require_whole(run, spec)
    assert points(run)[0] == running[0].params


def test_what_was_recorded_but_not_told_is_told_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)

    tell = TrialBook.tell

    def faulty_tell(self: TrialBook, number: int, told: Told) -> None:
        if number == 2:
            raise KeyboardInterrupt
        tell(self, number, told)

    with monkeypatch.context() as patch:
        patch.setattr(TrialBook, "tell", faulty_tell)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(spec, run)
    assert [trial.state.name for trial in journal(run)] == ["COMPLETE", "COMPLETE", "RUNNING"]
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert sorted(before) == [0, 1, 2]
    run_sweep(spec, run)
    require_whole(run, spec)
    after = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert before.items() <= after.items()


@pytest.mark.parametrize("outcome", ["infeasible", "failed", "lost"])
def test_an_outcome_without_a_number_is_told_from_its_record(tmp_path: Path, outcome: str) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, FaultyEngines(Faults(run_errors={4: KeyboardInterrupt()})))
    point = journal(run)[0].params
    write_rows(run.path, "trials", "trial-00000", [_row(outcome, point)])
    engines = FaultyEngines()
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert read(run, "trials")[0]["outcome"] == outcome


def _row(outcome: str, point: dict[str, Any]) -> dict[str, Any]:
    changes = {"study": "small", "trial": 0, "outcome": outcome, "point": json.dumps(point), "ratio": None}
    return plain_row("trials", **changes, failure="by hand", failure_detail="for a test")


def test_blocks_of_a_trial_that_failed_at_its_second_go_do_not_stay(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(KeyboardInterrupt), killed_before_the_trial_row(0):
        run_sweep(spec, run)
    assert {row["trial"] for row in read(run, "blocks")} == {0}
    run_sweep(spec, run, FaultyEngines(Faults(run_errors={2: EngineError("cuda-oom", "out of memory")})))
    require_whole(run, spec)
    assert read(run, "trials")[0]["outcome"] == "failed"


@contextmanager
def killed_before_the_trial_row(number: int) -> Iterator[None]:
    """Stop the sweep between a trial's blocks and its row."""
    from orchestrator.sweep import ledger

    def faulty_write(folder: Path, table: str, parts: Any) -> Any:
        if table == "trials" and f"trial-{number:05d}" in parts:
            raise KeyboardInterrupt
        return write_parts(folder, table, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "write_parts", faulty_write)
        yield


def test_the_confirmation_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    spec = make_spec(confirm__points=3)
    run = new_run(tmp_path / "run", spec)
    search = 1 + sum(spec.blocks.warmup + 2 * 3 for _ in range(spec.trials))
    first = FaultyEngines()
    run_sweep(spec, run, first)
    blocks = first.made[0].blocks
    assert blocks <= search + 3 * (1 + 2 * 3 + 2)

    stopped = new_run(tmp_path / "stopped", spec)
    # The last confirmation takes 1 + 6 blocks and its share of the accuracy run 1 more.
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, stopped, FaultyEngines(Faults(run_errors={blocks - 4: KeyboardInterrupt()})))
    confirmed = {key: count for key, count in blocks_of(stopped).items() if key[1] == "confirm"}
    assert len(confirmed) == 2
    second = FaultyEngines()
    run_sweep(spec, stopped, second)
    require_whole(stopped, spec)
    # One to warm up, one confirmation, the greedy tokens of both roles: nothing else is measured again.
    assert second.made[0].blocks == 1 + (1 + 2 * 3) + 2
    assert len(best(stopped.path).finalists) == 3


def test_a_study_that_is_complete_is_left_as_it_is(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    before = {path: path.read_bytes() for path in run.path.rglob("*.parquet")}
    engines = FaultyEngines()
    run_sweep(spec, run, engines)
    assert {path: path.read_bytes() for path in run.path.rglob("*.parquet")} == before
    assert engines.made == []
    require_whole(run, spec)


def test_a_resumed_sweep_knows_the_noise_and_the_best_of_before(tmp_path: Path) -> None:
    from orchestrator.sweep.ledger import Ledger

    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    ledger = Ledger(spec, run)
    assert ledger.best is not None
    assert ledger.best.interval is not None
    assert ledger.best.interval.ratio == min(row["ratio"] for row in read(run, "trials"))
    assert ledger.noise.dof == sum(row["pairs"] - 1 for row in read(run, "trials"))
    assert 0.001 < ledger.noise.sd < 0.05


def test_a_refused_sweep_is_refused_again_and_repeats_no_trial(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    for tries in (1, 2):
        with pytest.raises(ChunksmithError, match="knob-not-in-force"):
            run_sweep(spec, run, FaultyEngines(Faults(workspace_unused=True)))
        assert [row["trial"] for row in read(run, "trials")] == list(range(tries))
        # Its baseline failed, which says nothing of the point.
        assert [trial.state.name for trial in journal(run)] == ["FAIL"] * tries


def child(run: RunFolder, *step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sweep.sweeping_child", str(run.path), *step]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_kill_9_at_seeded_moments(tmp_path: Path) -> None:
    """One long study, killed again and again: by a clock, so wherever the process happens to be."""
    spec = make_spec(
        space__mla_workspace_rows={"scope": "live", "low": 128, "high": 4096, "step": 16}, trials=100, confirm__points=3
    )
    run, rng, killed = new_run(tmp_path / "run", spec), random.Random(0), 0
    for _ in range(KILLS):
        with child(run) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            done = len(read(run, "trials"))
            # Let it get past at least one trial, then kill it at any moment of the next few.
            while len(read(run, "trials")) == done and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        require_no_duplicates(run)
    assert killed >= KILLS // 2
    with child(run) as process:
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    require_whole(run, spec)
    assert len({json.dumps(point, sort_keys=True) for point in points(run).values()}) == spec.trials
    assert not list(run.path.rglob(".*.tmp"))
    assert best(run.path).decision == "winner"


FLUSHED = {"trials": 4, "confirm__points": 1}


@pytest.fixture(scope="module")
def flushes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How often an undisturbed sweep flushes something to the disk."""
    spec, flush, descriptors = make_spec(**FLUSHED), os.fsync, []
    run = new_run(tmp_path_factory.mktemp("flushes") / "run", spec)

    def counted(descriptor: int) -> None:
        descriptors.append(descriptor)
        flush(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", counted)
        run_sweep(spec, run)
    return len(descriptors)


@pytest.mark.parametrize("seed", range(KILLS))
def test_killed_at_a_flush_and_resumed(tmp_path: Path, flushes: int, seed: int) -> None:
    """Killed just before something reaches the disk; each seed takes another of the places that there are."""
    spec = make_spec(**FLUSHED)
    run = new_run(tmp_path / "run", spec)
    step = 1 + int(flushes * (seed + random.Random(seed).random()) / KILLS)
    with child(run, str(step)) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    run_sweep(read_spec(run), run)
    require_whole(run, spec)
    assert before.items() <= {row["trial"]: row["finished_at"] for row in read(run, "trials")}.items()
    assert best(run.path).decision == "winner"
    assert not os.path.lexists(f"{run.journal}.lock")
