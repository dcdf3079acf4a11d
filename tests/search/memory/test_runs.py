from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UserError
from orchestrator.records import RunFolder, write_rows
from orchestrator.search.memory import read_run
from tests.records.rows import plain_row


def written(folder: Path, *changes: dict[str, Any]) -> Path:
    run = RunFolder.create(folder)
    for number, change in enumerate(changes):
        row = plain_row("trials", **{"trial": number, "outcome": "complete", "direction": "minimize", **change})
        write_rows(run.path, "trials", f"trial-{number:05d}", [row])
    return run.path


def point(rows: int) -> str:
    return json.dumps({"rows": rows})


def test_complete_trials_that_were_measured_in_full_are_read(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "a",
        {"point": point(1), "ratio": 0.5},
        {"point": point(2), "ratio": 2.0, "direction": "maximize"},
        {"point": point(3), "outcome": "failed", "ratio": None},
        {"point": point(4), "ratio": 0.1, "fidelity": "short"},
    )
    run = read_run(folder)
    assert (run.name, list(run.points)) == (str(folder), [{"rows": 1}, {"rows": 2}])
    assert run.losses.tolist() == pytest.approx([math.log(0.5), -math.log(2.0)])


def test_what_cannot_be_learned_from_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_run(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="is not a run folder"):
        read_run(tmp_path / "folder")
    with pytest.raises(UserError, match="has no complete trial"):
        read_run(written(tmp_path / "empty"))
