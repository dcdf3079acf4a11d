"""``chunksmith sweep``: mistakes, trouble and stops, each in one line. No test here starts an engine."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator import cluster
from orchestrator.cli import main
from orchestrator.cli.resume_command import resume_command
from orchestrator.engines.faulty import Faults, FaultyEngine
from orchestrator.records import RunFolder
from tests.sweep.studies import content, make_spec, read, require_no_duplicates, require_whole

Outcome = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sweep(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command; gives its exit code, its output and the one line of its error."""

    def run(*arguments: str) -> Outcome:
        exit_code = main(["sweep", *arguments])
        output, error = capsys.readouterr()
        assert error.count("\n") == (exit_code != 0)
        return exit_code, output, error.removeprefix("chunksmith: error: ").rstrip("\n")

    return run


def written(name: str = "spec.yaml", **changes: Any) -> str:
    Path(name).write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"space__mla_workspace_row": {"scope": "live", "values": [1]}},
            "spec.yaml: space: unknown knob 'mla_workspace_row'; did you mean 'mla_workspace_rows'?",
        ),
        (
            {"objective__metric": "median_tft_ms"},
            "spec.yaml: objective.metric: unknown metric 'median_tft_ms'; did you mean 'median_ttft_ms'?",
        ),
        ({"model": "/nowhere/model"}, "spec.yaml: model: '/nowhere/model' does not exist; allowed: "),
    ],
)
def test_a_mistake_in_the_spec_is_one_line_and_leaves_nothing(
    sweep: Callable[..., Outcome], changes: dict[str, Any], line: str
) -> None:
    exit_code, output, error = sweep(written(**changes))
    assert (exit_code, output) == (2, "")
    assert error.startswith(line)
    assert not Path("runs").exists()


def test_a_spec_that_is_not_there(sweep: Callable[..., Outcome]) -> None:
    assert sweep("gone.yaml") == (2, "", "gone.yaml: cannot read the spec: No such file or directory")


def test_neither_spec_nor_resume(sweep: Callable[..., Outcome]) -> None:
    exit_code, _, error = sweep()
    assert exit_code == 2
    assert error.startswith("sweep: give a spec, ")


def test_a_run_folder_that_exists_is_left_alone(sweep: Callable[..., Outcome]) -> None:
    RunFolder.create("runs/small").spec.write_text("before")
    exit_code, _, error = sweep(written())
    assert (exit_code, error) == (
        2,
        "runs/small: is an earlier run. Go on with it by --resume, or choose another folder by --run.",
    )
    assert Path("runs/small/spec.yaml").read_text() == "before"
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    exit_code, _, error = sweep("spec.yaml", "--run", "full")
    assert (exit_code, error.split(".")[0]) == (2, "full: is not empty")
    assert [path.name for path in Path("full").iterdir()] == ["file"]


def test_resume_without_a_run(sweep: Callable[..., Outcome]) -> None:
    assert sweep("--resume")[0::2] == (2, "runs: holds no run to resume; give --run, or start one with a spec")
    assert sweep("--resume", written())[0::2] == (2, "runs/small: does not exist.")
    RunFolder.create("runs/smal").spec.write_text("x")
    assert sweep("--resume", "spec.yaml")[0::2] == (2, "runs/small: does not exist; did you mean 'runs/smal'?")


def test_resume_with_another_spec(sweep: Callable[..., Outcome]) -> None:
    RunFolder.create("runs/small").spec.write_text(make_spec().to_yaml())
    exit_code, _, error = sweep("--resume", written(seed=1))
    assert exit_code == 2
    assert error.startswith("spec.yaml: seed: 1 differs from 0 in ")
    exit_code, _, error = sweep("--resume", written(), "--trials", "9")
    assert exit_code == 2
    assert error.startswith("spec.yaml: trials: 9 differs from 6 in ")
    assert sweep("--resume", "--trials", "9")[0::2] == (
        2,
        "--trials 9: the run has 6 trials, and a resumed run keeps its spec",
    )


def test_a_run_folder_whose_spec_was_never_written_cannot_be_resumed(sweep: Callable[..., Outcome]) -> None:
    RunFolder.create("runs/small")
    assert sweep("--resume")[0] == 2
    exit_code, _, error = sweep("--resume", "--run", "runs/small")
    assert exit_code == 2
    assert error.endswith("spec.yaml: cannot read the spec: No such file or directory")


@pytest.mark.parametrize("trials", ["0", "many"])
def test_a_number_of_trials_that_is_none(sweep: Callable[..., Outcome], trials: str) -> None:
    exit_code, _, error = sweep(written(), "--trials", trials)
    assert exit_code == 2
    assert "--trials" in error


def test_an_authentication_that_ray_does_not_know(sweep: Callable[..., Outcome]) -> None:
    assert sweep(written(), "--ray-auth", "tokens") == (2, "", "--ray-auth: must be token or disabled, got 'tokens'")
    assert not Path("runs").exists()


def test_a_port_in_use_leaves_no_run_behind(sweep: Callable[..., Outcome]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for _ in range(2):
            # The second time as the first: no folder is in the way of the command, once the port is free.
            exit_code, _, error = sweep(written(), "--dashboard-port", str(port))
            assert (exit_code, error) == (
                2,
                f"--dashboard-port {port}: Address already in use; choose a free port",
            )
    assert not Path("runs/small").exists()


@pytest.mark.parametrize("made_before", [True, False])
def test_a_folder_that_the_user_made_stays(sweep: Callable[..., Outcome], made_before: bool) -> None:
    run = Path("mine")
    if made_before:
        run.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert sweep(written(), "--run", "mine", "--dashboard-port", port)[0] == 2
    assert run.exists() == made_before
    assert not made_before or list(run.iterdir()) == []


def test_a_mistake_at_resuming_leaves_the_run_as_it_is(sweep: Callable[..., Outcome]) -> None:
    RunFolder.create("runs/small").spec.write_text(make_spec().to_yaml())
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert sweep("--resume", "--dashboard-port", str(server.getsockname()[1]))[0] == 2
    assert RunFolder.open("runs/small").spec.exists()


def test_a_run_that_another_process_holds_is_not_touched(sweep: Callable[..., Outcome]) -> None:
    run = RunFolder.create("runs/small")
    run.spec.write_text(make_spec().to_yaml())
    with run.lock():
        exit_code, _, error = sweep("--resume")
    assert exit_code == 1
    assert f"in use by process {os.getpid()}" in error
    assert not run.provenance.exists()


class FaultyRoom:
    """Fault: no Ray, and what is asked for fits, or one slot."""

    def __init__(self, *_: object, most: int | None = None) -> None:
        self._most = most or 1

    def __call__(self, there: int) -> int:
        return self._most


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
    monkeypatch.setattr(cluster, "ClusterRoom", FaultyRoom)
    return queue


def test_a_sweep_ends_with_its_answer(sweep: Callable[..., Outcome], faults: list[Faults]) -> None:
    exit_code, output, _ = sweep(written())
    assert exit_code == 0
    assert "trial 5 (6 of " in output
    assert "vllm serve" in output
    require_whole(RunFolder("runs/small"), make_spec())
    assert yaml.safe_load(Path("runs/small/spec.yaml").read_text()) == yaml.safe_load(make_spec().to_yaml())


@pytest.mark.parametrize("given", ["--parallel", "resources"])
def test_several_trials_at_a_time(sweep: Callable[..., Outcome], faults: list[Faults], given: str) -> None:
    changes: dict[str, Any] = {} if given == "--parallel" else {"resources": {"parallel": 3}}
    options = ["--parallel", "3"] if given == "--parallel" else []
    exit_code, output, _ = sweep(written(**changes), *options)
    assert exit_code == 0
    assert "3 trials at a time" in output
    require_whole(RunFolder("runs/small"), make_spec(**changes))
    # How many is no part of the study: a resumed run may have another number.
    assert sweep("--resume", "--parallel", "1")[0] == 0


def test_trials_on_the_command_line_are_those_of_the_run(sweep: Callable[..., Outcome], faults: list[Faults]) -> None:
    assert sweep(written(), "--trials", "4", "--run", "elsewhere")[0] == 0
    require_whole(RunFolder("elsewhere"), make_spec(trials=4))
    assert sweep("--resume", "--run", "elsewhere", "--trials", "4")[0] == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), signal.SIGTERM])
def test_a_stopped_sweep_says_how_to_go_on(
    sweep: Callable[..., Outcome], faults: list[Faults], monkeypatch: pytest.MonkeyPatch, stop: Any
) -> None:
    if isinstance(stop, KeyboardInterrupt):
        faults.append(Faults(run_errors={9: stop}))
    else:
        run, blocks = FaultyEngine.run, []

        def stopping_run(self: FaultyEngine, *arguments: Any, **options: Any) -> Any:
            blocks.append(1)
            if len(blocks) == 9:
                os.kill(os.getpid(), stop)
            return run(self, *arguments, **options)

        monkeypatch.setattr(FaultyEngine, "run", stopping_run)
    exit_code, _, error = sweep(written(), "--run", "a run", "--address", "auto", "--ray-auth", "token")
    folder = RunFolder("a run")
    assert exit_code == 130
    assert error == (
        "stopped; what has ended is kept, and the trial in hand is measured again. Go on with: "
        + resume_command(folder.path, address="auto", ray_auth="token")
    )
    assert 0 < len(read(folder, "trials")) < 6
    assert sweep("--resume", "--run", "a run")[0] == 0
    require_whole(folder, make_spec())


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (OSError("the cable is out"), "{run}: the cable is out. "),
        (OSError(errno.EIO, "Input/output error", "/data/x"), "/data/x: Input/output error. "),
    ],
)
def test_trouble_of_the_machine_is_told_whatever_it_holds(
    sweep: Callable[..., Outcome], faults: list[Faults], trouble: OSError, told: str
) -> None:
    faults.append(Faults(run_errors={9: trouble}))
    exit_code, _, error = sweep(written())
    run = RunFolder("runs/small")
    assert exit_code == 1
    assert error == f"{told.format(run=run.path)}Mend that, then: {resume_command(run.path)}"


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_sigterm_ends_a_sweep_on_rays_own_cluster_as_ctrl_c_does(tmp_path: Path) -> None:
    child = Path(__file__).with_name("waiting_sweep_child.py")
    root = child.parents[2]
    process = subprocess.Popen(
        [sys.executable, str(child), written()],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert any(line == "measuring\n" for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, error.count("\n")) == (130, 1), error
    assert error.startswith("chunksmith: error: stopped; ")
    assert error.endswith(f" sweep --resume --run {tmp_path / 'runs' / 'small'}\n")


def test_the_latest_run_is_resumed_when_none_is_named(sweep: Callable[..., Outcome], faults: list[Faults]) -> None:
    for name in ("first", "second"):
        faults.append(Faults(run_errors={9: KeyboardInterrupt()}))
        assert sweep(written(study=name))[0] == 130
    os.utime("runs/first/spec.yaml", (1, 1))
    exit_code, output, _ = sweep("--resume")
    assert exit_code == 0
    assert "study second" in output
    assert len(read(RunFolder("runs/second"), "trials")) == 6
    assert len(read(RunFolder("runs/first"), "trials")) < 6


def test_a_knob_without_effect_is_refused_in_one_line(sweep: Callable[..., Outcome], faults: list[Faults]) -> None:
    faults.append(Faults(workspace_unused=True))
    exit_code, output, error = sweep(written())
    assert exit_code == 1
    assert error.startswith("failed: knob-not-in-force: mla_workspace_rows: the block never entered the context path")
    assert "vllm serve" not in output


@pytest.mark.parametrize("call", range(0, 42, 6))
def test_a_disk_that_runs_full_is_one_line_and_nothing_is_lost(
    sweep: Callable[..., Outcome], faults: list[Faults], monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    flush, calls = os.fsync, []

    def faulty_flush(descriptor: int) -> None:
        calls.append(descriptor)
        # The first six make the empty tables.
        if len(calls) > 6 + call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", faulty_flush)
        exit_code, _, error = sweep(written())
    assert exit_code == 1
    assert "No space left on device" in error
    run = RunFolder("runs/small")
    if call == 0:
        # Before there was a run: the same command works as soon as there is space.
        assert not run.path.exists()
        assert sweep("spec.yaml")[0] == 0
        return
    assert error.endswith(f"Mend that, then: {resume_command(run.path)}")
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert sweep("--resume")[0] == 0
    require_whole(run, make_spec())
    assert before.items() <= {row["trial"]: row["finished_at"] for row in read(run, "trials")}.items()


def test_no_option_is_without_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--run", "--resume", "--trials", "--parallel", "--address", "--ray-auth", "--dashboard-port"):
        assert option in shown
