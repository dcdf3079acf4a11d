"""The run folder: made once, found by name, held by one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import SCHEMAS, RunFolder, read_arrow
from tests.records.rows import no_file_larger_than

HOLD = """
import sys
from orchestrator.records import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


CREATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from orchestrator.records import RunFolder, folder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "tables":
    folder.write_text_atomic = die
else:
    RunFolder._publish = die
RunFolder.create(sys.argv[1], spec="study: demo")
"""
"""Fault: a process that kills itself with its tables made, or with all made and nothing named."""


def hold(run: RunFolder) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_paths_are_absolute_and_where_the_design_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFolder.create("runs/demo")
    root = tmp_path / "runs" / "demo"
    assert (run.path, run.spec, run.provenance) == (root, root / "spec.yaml", root / "provenance.json")
    assert (run.journal, run.logs) == (root / "study.journal", root / "logs")
    assert {name: run.table(name) for name in SCHEMAS} == {name: root / name for name in SCHEMAS}
    monkeypatch.chdir("/")
    assert run.logs.is_dir()
    with pytest.raises(ValueError, match="unknown table 'trial'"):
        run.table("trial")


def test_an_earlier_run_is_not_overwritten(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "demo")
    run.spec.write_text("study: demo\n")
    with pytest.raises(
        UserError, match=r"demo: is an earlier run\. Go on with it by --resume, or choose another folder by --run"
    ):
        RunFolder.create(tmp_path / "demo")
    assert run.spec.read_text() == "study: demo\n"


def test_a_folder_of_something_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="is not empty"):
        RunFolder.create(tmp_path)
    with pytest.raises(UserError, match="is a file, not a folder"):
        RunFolder.create(tmp_path / "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path).is_run()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ChunksmithError, match="cannot make the run folder: Not a directory"):
        RunFolder.create(tmp_path / "file" / "run")


@pytest.mark.parametrize("existed", [False, True])
def test_a_full_disk_leaves_no_half_made_run(tmp_path: Path, existed: bool) -> None:
    if existed:
        (tmp_path / "run").mkdir()
    with no_file_larger_than(1000), pytest.raises(ChunksmithError, match="cannot write: File too large"):
        RunFolder.create(tmp_path / "run")
    assert (tmp_path / "run").exists() == existed
    assert RunFolder.create(tmp_path / "run").is_run()


@pytest.mark.parametrize(("step", "existed"), [("tables", False), ("all", False), ("all", True)])
def test_a_creator_that_is_killed_leaves_no_run(tmp_path: Path, step: str, existed: bool) -> None:
    path = tmp_path / "run"
    if existed:
        path.mkdir()
    killed = subprocess.run([sys.executable, "-c", CREATE_AND_DIE, str(path), step], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = [one for one in (path if existed else tmp_path).iterdir() if one != path]
    assert RunFolder(left).is_half_made
    assert not RunFolder(left).is_run()
    with pytest.raises(UserError, match="is not a run folder" if existed else "does not exist"):
        RunFolder.open(path)
    # Another process may be at it, until it is old.
    run = RunFolder.create(path, spec="study: demo")
    assert run.spec.read_text() == "study: demo"
    assert left.exists()
    os.utime(left, (0, 0))
    if existed:
        with run.lock():
            pass
    else:
        RunFolder.create(tmp_path / "other")
    assert not left.exists()


@pytest.mark.parametrize("existed", [False, True])
def test_a_run_appears_whole(tmp_path: Path, existed: bool) -> None:
    path = tmp_path / "runs" / "demo"
    if existed:
        path.mkdir(parents=True)
        path.chmod(0o2750)
    run = RunFolder.create(path, spec="study: demo")
    assert sorted(entry.name for entry in path.iterdir()) == sorted([*SCHEMAS, "logs", "spec.yaml"])
    assert [entry.name for entry in path.parent.iterdir()] == ["demo"]
    for name in SCHEMAS:
        assert read_arrow(run.path, name).num_rows == 0
    if existed:
        assert path.stat().st_mode & 0o7777 == 0o2750


def test_of_two_that_create_one_run_the_second_is_turned_away(tmp_path: Path) -> None:
    """Both saw an empty folder; ``faulty_listing`` brings back the moment before the first had filled it."""
    first = RunFolder.create(tmp_path / "run")

    def faulty_listing(self: Path) -> Iterator[Path]:
        return iter(())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "iterdir", faulty_listing)
        with pytest.raises(UserError, match="another process has just created this run"):
            RunFolder.create(tmp_path / "run")
    is_dir, exists = Path.is_dir, Path.exists
    with pytest.MonkeyPatch.context() as patch:
        # Or neither saw a folder.
        patch.setattr(Path, "is_dir", lambda self: self != first.path and is_dir(self))
        patch.setattr(Path, "exists", lambda self: self != first.path and exists(self))
        with pytest.raises(UserError, match="another process has just created this run"):
            RunFolder.create(tmp_path / "run")
    assert first.table("trials").is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_opening_names_the_nearest_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "cpu_demo")
    RunFolder.create(tmp_path / "kimi")
    (tmp_path / "cpu_dem0").mkdir()
    assert RunFolder.open(tmp_path / "kimi").path == tmp_path / "kimi"
    with pytest.raises(UserError, match=r"cpu_dmo: does not exist; did you mean '.*/cpu_demo'\?"):
        RunFolder.open(tmp_path / "cpu_dmo")
    with pytest.raises(UserError, match=r"cpu_dem0: is not a run folder; did you mean '.*/cpu_demo'\?"):
        RunFolder.open(tmp_path / "cpu_dem0")
    with pytest.raises(UserError, match=r"xyz: does not exist\.$"):
        RunFolder.open(tmp_path / "xyz")
    with pytest.raises(UserError, match=r"does not exist\.$"):
        RunFolder.open(tmp_path / "nowhere" / "xyz")


def test_two_processes_never_share_a_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    with hold(run) as child:
        with pytest.raises(ChunksmithError, match=rf"run: in use by process {child.pid} on "), run.lock():
            pytest.fail("both hold the run")
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(timeout=30) == 0
    with run.lock():
        assert (run.path / ".lock").read_text().split()[0] == str(os.getpid())
    assert (run.path / ".lock").read_text() == ""


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    with hold(run) as child:
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
    with run.lock():
        pass


def test_the_lock_is_released_when_its_body_fails(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    with run.lock():
        pass


def test_taking_the_lock_clears_what_a_killed_writer_left(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    (run.table("blocks") / ".x.parquet.1.2.tmp").write_bytes(b"half")
    (run.path / ".spec.yaml.1.2.tmp").write_text("half")
    with run.lock():
        left = sorted(path.name for path in run.table("blocks").iterdir())
        assert left == ["_manifest.jsonl", "part-empty.parquet"]
        assert sorted(path.name for path in run.path.glob(".*")) == [".lock"]
