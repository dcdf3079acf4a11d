"""``chunksmith soak``: what it prints, and what it ends with. No test here starts an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from orchestrator import cluster
from orchestrator.analysis import best
from orchestrator.cli import main
from orchestrator.engines import EngineError
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.records import RunFolder, SoakRecord
from tests.sweep.studies import make_spec, new_run, run_sweep

Outcome = tuple[int, list[str], str]
LOCKED = Faults(unreserved_rows=4 * 1024)
"""The area limit of the engine exceeds its locked reservation."""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[Faults]:
    """The command on faulty engines in place of Ray's; the list holds the faults of the engines to come."""
    queue: list[Faults] = []

    class FaultyRayEngine(FaultyEngine):
        """Fault: no Ray, and what the list says."""

        def __init__(self, log_dir: Path, **_: object) -> None:
            super().__init__(queue.pop(0) if queue else None)
            self.engine_id, self.log_path = "faulty-0", str(log_dir / "faulty-0.log")

    monkeypatch.setattr(cluster, "RayEngine", FaultyRayEngine)
    monkeypatch.setattr(cluster, "ray_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(cluster, "engines_that_fit", lambda most, **_: most)
    return queue


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run with a winner that was never soaked."""
    monkeypatch.chdir(tmp_path)
    spec = make_spec(trials=12)
    run = new_run(Path("runs/small"), spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    return run


@pytest.fixture
def soak(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command; gives its exit code, its lines and the one line of its error."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        exit_code = main(["soak", *arguments])
        output, error = capsys.readouterr()
        assert error.count("\n") == (exit_code != 0)
        return exit_code, output.splitlines(), error.removeprefix("chunksmith: error: ").rstrip("\n")

    return run


def test_a_winner_that_survives(soak: Callable[..., Outcome], run: RunFolder, faults: list[Faults]) -> None:
    number = best(run.path).trial
    exit_code, lines, _ = soak("runs/small", "--rounds", "2")
    assert exit_code == 0
    assert lines[0] == (
        f"soak of trial {number}: mla_workspace_rows=1024, max_num_batched_tokens=512: 2 rounds, run {run.path}"
    )
    assert lines[1].startswith("starting faulty-0 (log: ")
    assert lines[2] == "faulty-0 warm after 1.0 s"
    blocks = lines[3:-1]
    names = ["normal load", "widest step", "deepest step", "longest context", "full cache"]
    assert [line.partition(":")[0] for line in blocks] == [
        f"round {number}, {name}" for number in (1, 2) for name in names
    ]
    assert all(line.partition(" tokens: ")[2].startswith("ok (") for line in blocks)
    path = run.path / "soak" / f"trial-{number:05d}.json"
    assert lines[-1].startswith(f"trial {number} passed its soak: 10 blocks in ")
    assert lines[-1].endswith(f" s, no failure ({path})")
    assert best(run.path).soak == "passed"


def test_a_winner_that_breaks_is_none_any_more(
    soak: Callable[..., Outcome], run: RunFolder, faults: list[Faults], capsys: pytest.CaptureFixture[str]
) -> None:
    number = best(run.path).trial
    assert number is not None
    faults.append(LOCKED)
    exit_code, lines, error = soak("runs/small")
    path = run.path / "soak" / f"trial-{number:05d}.json"
    assert exit_code == 1
    assert error.startswith(f"trial {number} failed its soak at 'widest area, c4a layers': workspace-locked: ")
    assert error.endswith(f"; reproducer: {path}")
    assert lines[-1].startswith("round 1, widest area, c4a layers: failed: workspace-locked: ")
    record = SoakRecord.read(run.path, number)
    assert record is not None
    assert not record.passed
    assert main(["best", "runs/small"]) == 0
    assert f"Winner: trial {number}:" not in capsys.readouterr().out
    # Named, it is soaked again; the next best, if it can win, is what is soaked otherwise.
    assert soak("runs/small", "--trial", str(number))[0] == 0
    assert best(run.path).trial == number


def test_the_rounds_are_those_of_the_spec(tmp_path: Path, soak: Callable[..., Outcome], faults: list[Faults]) -> None:
    spec = make_spec(trials=12, soak__rounds=3)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    assert ": 3 rounds, run " in soak(str(run.path))[1][0]
    assert ": 1 round, run " in soak(str(run.path), "--rounds", "1")[1][0]


def test_without_a_winner_a_trial_has_to_be_named(
    tmp_path: Path, soak: Callable[..., Outcome], faults: list[Faults]
) -> None:
    spec = make_spec(confirm__points=0)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    exit_code, lines, error = soak(str(run.path))
    assert (exit_code, lines) == (2, [])
    assert error == (
        f"{run.path}: there is no winner to soak (6 of 6 trials are complete, but no point has been confirmed with "
        "fresh prompts); name a trial with --trial"
    )
    exit_code, lines, _ = soak(str(run.path), "--trial", "3")
    assert exit_code == 0
    assert lines[0].startswith("soak of trial 3: ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["runs/smal"], "runs/smal: does not exist; did you mean 'runs/small'?"),
        (["runs/small", "--trial", "99"], "{run}: there is no trial 99; trials 0 to 11 are recorded"),
        (["runs/small", "--ray-auth", "tokens"], "--ray-auth: must be token or disabled, got 'tokens'"),
    ],
)
def test_a_mistake_is_one_line(soak: Callable[..., Outcome], run: RunFolder, arguments: list[str], error: str) -> None:
    assert soak(*arguments) == (2, [], error.format(run=run.path))


def test_a_number_of_rounds_that_is_none(soak: Callable[..., Outcome]) -> None:
    exit_code, _, error = soak("runs/small", "--rounds", "0")
    assert exit_code == 2
    assert "--rounds" in error


def test_a_run_that_another_process_holds_is_not_touched(
    soak: Callable[..., Outcome], run: RunFolder, faults: list[Faults]
) -> None:
    with run.lock():
        exit_code, _, error = soak("runs/small")
    assert exit_code == 1
    assert f"in use by process {os.getpid()}" in error
    assert not (run.path / "soak").exists()


def test_an_engine_that_never_starts(soak: Callable[..., Outcome], run: RunFolder, faults: list[Faults]) -> None:
    refusal = EngineError("engine-start", "ValueError: no", log_path="x.log")
    faults += [Faults(start_error=refusal)] * 2
    exit_code, _, error = soak("runs/small")
    assert (exit_code, error) == (
        1,
        "the baseline's engine does not start: engine-start: ValueError: no (engine log: x.log)",
    )
    assert best(run.path).soak == "not run"


def test_no_option_is_without_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--trial", "--rounds", "--address", "--ray-auth"):
        assert option in shown
