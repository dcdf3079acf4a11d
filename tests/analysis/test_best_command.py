"""``chunksmith best``, through typer."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from orchestrator.cli.best import best
from orchestrator.errors import UserError
from tests.analysis.runs import Run

app = typer.Typer()
app.command()(best)


def test_prints_for_people_and_for_scripts(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.finalist(1, 0.66)
    people = CliRunner().invoke(app, [str(run.path)])
    assert people.exit_code == 0
    assert people.output.startswith("Winner: trial 1")
    scripts = CliRunner().invoke(app, [str(run.path), "--json"])
    assert scripts.exit_code == 0
    assert json.loads(scripts.output)["decision"] == "winner"


def test_no_clear_winner_is_an_answer_and_no_error(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    done = CliRunner().invoke(app, [str(run.path)])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "No clear winner")


def test_a_folder_that_is_no_run_is_the_users_mistake(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(tmp_path / "nothing")])
    assert isinstance(done.exception, UserError)
