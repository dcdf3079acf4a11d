"""A run that ships keeps its answer, and nothing of the machine that recorded it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from orchestrator.analysis import best
from tests.analysis.runs import Run
from tools.ship_run import ship


def test_the_answer_stays_and_the_paths_go(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.9)
    run.finalist(1, 0.66)
    command = ["/home/someone/models/tiny", "--max-num-seqs", "4"]
    run.trial(1, serve_args=command, engine_log=str(tmp_path / "run/logs/engine.log"))
    run.folder.provenance.write_text(
        json.dumps({"engines": [{"log_path": "/home/someone/x.log", "resolved": {"a": 1}}]})
    )
    ship(run.path, tmp_path / "shipped")
    before, after = asdict(best(run.path)), asdict(best(tmp_path / "shipped"))
    assert before.pop("serve_args") == command
    assert after.pop("serve_args") == ["tiny-mla", *command[1:]]
    assert before == after
    for file in (tmp_path / "shipped").rglob("*.*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"/home/someone" not in content
            assert str(tmp_path).encode() not in content
