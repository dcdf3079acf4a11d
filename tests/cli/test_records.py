"""``chunksmith records``, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli import main
from tests.analysis.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.66)
    return run


def damage(run: Run) -> Path:
    path = run.folder.table("trials") / "merged-00000.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    return path


def test_check_names_what_is_damaged_and_sets_it_aside(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "check", str(run.path)]) == 0
    assert "trials" in capsys.readouterr().out
    path = damage(run)
    assert main(["records", "check", str(run.path)]) == 1
    captured = capsys.readouterr()
    assert f"{path} is damaged" in captured.out
    assert "(parts: trial-00000)" in captured.out
    assert len(captured.err.splitlines()) == 1
    assert "--repair" in captured.err
    assert main(["records", "check", str(run.path), "--repair"]) == 0
    assert "set aside as damaged/trials/merged-00000.parquet" in capsys.readouterr().out
    assert main(["records", "check", str(run.path), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert [(one["table"], one["faults"]) for one in tables] == [("trials", []), ("blocks", []), ("requests", [])]


def test_compact_merge_and_export(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "compact", str(run.path)]) == 0
    assert "files before" in capsys.readouterr().out
    assert main(["records", "compact", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"] == 1
    assert main(["records", "merge", str(run.path), str(run.path), "--into", str(tmp_path / "both")]) == 0
    assert "2 trials" in capsys.readouterr().out
    out = tmp_path / "out"
    assert main(["records", "export", str(tmp_path / "both"), "-o", str(out), "--table", "trials"]) == 0
    assert capsys.readouterr().out.split() == [str(out / "trials.csv")]


@pytest.mark.parametrize("name", ["check", "compact", "merge", "export"])
def test_mistakes_are_one_line(run: Run, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"merge": ["--into", str(tmp_path / "new")], "export": ["-o", str(tmp_path / "new")]}.get(name, [])
    assert main(["records", name, str(tmp_path / "rum"), *options]) == 2
    captured = capsys.readouterr()
    assert "did you mean" in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_run_that_a_sweep_holds_is_left_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with run.folder.lock():
        for words in (["compact"], ["check", "--repair"]):
            assert main(["records", *words, str(run.path)]) == 1
            assert "in use by process" in capsys.readouterr().err
        assert main(["records", "check", str(run.path)]) == 0


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records"]) == 0
    assert "compact" in capsys.readouterr().out
