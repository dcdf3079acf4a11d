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


def test_a_full_device_is_one_line_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full")
    assert full.is_char_device()
    run = Run(tmp_path / "run")
    run.finalist(1, 0.66)
    assert main(["export", str(run.path), "-o", str(full)]) == 1
    assert capsys.readouterr().err.startswith("chunksmith: error: No space left on device")
    assert full.is_char_device()
