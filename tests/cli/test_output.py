"""Files that the user names for an answer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.cli.output import write_output
from tests.analysis.runs import Run


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_output(pipe, "text")
    reader.join(10)
    assert found == ["text"]
    assert pipe.is_fifo()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = Run(tmp_path / "run")
    run.finalist(1, 0.66)
    return run.path


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_full_device_is_one_line_that_names_it_and_stays(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = Path("/dev/full")
    assert full.is_char_device()
    assert main([command, str(run), "-o", str(full)]) == 1
    assert capsys.readouterr().err == "chunksmith: error: /dev/full: cannot write: No space left on device.\n"
    assert full.is_char_device()


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_folder_is_no_file(command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(run), "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"chunksmith: error: {tmp_path}: is a folder; name a file.\n"


def test_a_picture_on_a_full_device_is_one_line_that_names_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("orchestrator.analysis.report.pictures", lambda run: {"full.png": b"as a browser draws it"})
    (tmp_path / "plots").mkdir()
    picture = tmp_path / "plots" / "full.png"
    picture.symlink_to("/dev/full")
    assert main(["report", str(run), "--png", str(picture.parent)]) == 1
    assert capsys.readouterr().err == f"chunksmith: error: {picture}: cannot write: No space left on device.\n"


def test_a_folder_for_pictures_that_cannot_be_made_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "plots"
    # Without a trial there is nothing to draw, and no browser is asked.
    assert main(["report", str(Run(tmp_path / "run").path), "--png", str(folder)]) == 1
    assert capsys.readouterr().err == f"chunksmith: error: {folder}: cannot write: Not a directory.\n"
