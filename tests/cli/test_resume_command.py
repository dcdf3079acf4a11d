"""The command that a stopped sweep prints: it must be there to be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.resume_command import resume_command

RUN = Path("/data/a run")
TAIL = ["sweep", "--resume", "--run", "/data/a run"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment's command, run from the checkout, which is the working folder; nothing on PATH."""
    path = tmp_path / ".venv" / "bin" / "chunksmith"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [".venv/bin/chunksmith", "sweep"])
    return path


def test_after_make_it_is_the_path_from_here(script: Path) -> None:
    assert shlex.split(resume_command(RUN)) == [".venv/bin/chunksmith", *TAIL]


def test_it_goes_on_on_the_same_cluster_with_as_many_slots(script: Path) -> None:
    command = resume_command(RUN, address="head:6379", ray_auth="token", parallel=8)
    options = ["--address", "head:6379", "--ray-auth", "token", "--parallel", "8"]
    assert shlex.split(command) == [".venv/bin/chunksmith", *TAIL, *options]


def test_from_another_folder_it_is_the_whole_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "sweep"])
    monkeypatch.chdir("/usr")
    assert shlex.split(resume_command(RUN)) == [str(script), *TAIL]
    monkeypatch.chdir(script.parent)
    assert shlex.split(resume_command(RUN)) == ["./chunksmith", *TAIL]


def test_on_path_it_is_the_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert shlex.split(resume_command(RUN)) == ["chunksmith", *TAIL]


def test_in_another_script_it_is_the_command_of_the_interpreter(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/sweep.py"])
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    assert shlex.split(resume_command(RUN)) == [".venv/bin/chunksmith", *TAIL]
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert shlex.split(resume_command(RUN)) == ["/nowhere/python", "-m", "orchestrator.cli", *TAIL]


def test_options_that_reach_the_cluster_are_kept(script: Path) -> None:
    words = shlex.split(resume_command(RUN, address="head:6379", ray_auth="token"))
    assert words[5:] == ["--address", "head:6379", "--ray-auth", "token"]
    assert shlex.split(resume_command(RUN, address="auto"))[5:] == ["--address", "auto"]


def test_what_it_names_can_be_run() -> None:
    program = shlex.split(resume_command(RUN))[: -len(TAIL)]
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False, env={**os.environ})
    assert (done.returncode, done.stdout.split()[0]) == (0, "chunksmith")
