"""The commands that answer from a run's records, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli import main
from tests.analysis.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    for number, ratio in enumerate((0.9, 0.66, 0.8, 0.7)):
        run.finalist(number, ratio)
        run.trial(number, ratio=ratio)
        run.confirm(number, ratio, baseline={"median_tpot_ms": 5.0, "output_throughput": 9.0})
    return run


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["knee"], "knee"),
        (["sensitivity"], "adjusted ratio"),
        (["why"], "trial 1: mla_workspace_rows=256"),
        (["compare"], "no change shown"),
        (["frontier", "--price", "2"], "price/Mtok"),
    ],
)
def test_people_and_programs_get_their_answer(
    run: Run, command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    runs = [str(run.path)] * (2 if name == "compare" else 1)
    assert main([name, *runs, *options]) == 0
    assert expected in capsys.readouterr().out
    assert main([name, *runs, *options, "--json"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["knee", "sensitivity", "why", "frontier", "report", "export", "dashboard"])
def test_a_run_without_a_trial_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([name, str(Run(tmp_path / "run").path)])
    captured = capsys.readouterr()
    if name == "report":
        assert code == 0
        return
    assert code in (1, 2)
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["best", "knee", "sensitivity", "why", "frontier", "report", "export", "dashboard"])
def test_a_folder_that_is_no_run_is_the_users_mistake(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
