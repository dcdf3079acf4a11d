"""Following a run."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from orchestrator.analysis.watch import Watch
from orchestrator.cli import main
from orchestrator.errors import UserError
from tests.analysis.runs import Run


def test_each_trial_is_news_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    following = Watch(run.path)
    assert list(following.news()) == []
    run.trial(0, ratio=0.9)
    run.trial(1, ratio=None, outcome="failed", failure="oom", failure_detail="no memory")
    first, second = following.news()
    assert (first.number, first.ratio, first.is_best) == (0, 0.9, True)
    assert (second.outcome, second.failure, second.is_best) == ("failed", "oom: no memory", False)
    assert list(following.news()) == []
    run.trial(2, ratio=0.95)
    run.trial(3, ratio=0.5)
    assert [(one.number, one.is_best) for one in following.news()] == [(2, False), (3, True)]
    assert following.done == 4


def test_a_trial_that_ends_another_way_is_news_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    following = Watch(run.path)
    run.trial(0, ratio=None, outcome="lost", failure="node", failure_detail="gone")
    assert [one.outcome for one in following.news()] == ["lost"]
    run.trial(0, ratio=0.5)
    assert [one.outcome for one in following.news()] == ["complete"]


def test_it_runs_as_long_as_its_holder_lives(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    following = Watch(run.path)
    assert not following.is_running
    with run.folder.lock():
        assert following.is_running
    assert not following.is_running
    # What a killed sweep leaves: its own name, and no process of that name.
    (run.path / ".lock").write_text(f"{2**22 + 1} {socket.gethostname()}\n")
    assert not following.is_running
    (run.path / ".lock").write_text(f"{os.getpid()} another-host\n")
    assert following.is_running


def test_the_command_ends_with_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run")
    run.finalist(1, 0.66)
    assert main(["watch", str(run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # The trial has one number, that of the records.
    assert lines[0].startswith("trial 1 (1): mla_workspace_rows=256")
    assert lines[1].startswith("Winner: trial 1")
    with run.folder.lock():
        assert main(["watch", str(run.path), "--once"]) == 0
    assert "running: 1 of unknown trials" in capsys.readouterr().out


def test_no_run_no_watch(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Watch(tmp_path / "nothing")
