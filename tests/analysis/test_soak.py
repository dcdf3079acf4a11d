"""What a soak does to the answer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.analysis import Answer, best
from orchestrator.errors import ChunksmithError
from orchestrator.records import SoakRecord, soak_path
from tests.analysis.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.80)
    run.finalist(1, 0.66)
    run.finalist(2, 1.00)
    return run


def soaked(run: Run, number: int, **changes: Any) -> None:
    """Record a soak that passed, with some fields changed."""
    fields: dict[str, Any] = {
        "study": "demo",
        "trial": number,
        "point": run.point(number),
        "passed": True,
        "rounds": 1,
        "blocks": 5,
        "seconds": 2.5,
        "lost_engines": 0,
        "batches": ["normal load", "full cache"],
        "serve_args": ["tiny model"],
        "env": {},
    }
    SoakRecord(**{**fields, **changes}).write(run.path)


def broken(run: Run, number: int) -> None:
    soaked(run, number, passed=False, batch="full cache", lengths=[[3, 1]], failure="cuda-oom", detail="out of memory")


def printed(answer: Answer) -> str:
    out = io.StringIO()
    answer.render(Console(file=out, width=200))
    return out.getvalue()


def test_a_point_that_failed_its_soak_is_not_recommended(run: Run) -> None:
    broken(run, 1)
    soaked(run, 0)
    answer = best(run.path)
    assert (answer.decision, answer.trial, answer.soak) == ("winner", 0, "passed")
    assert [(one.trial, one.soak) for one in answer.finalists] == [(1, "failed"), (0, "passed"), (2, "not run")]
    obstacle = "soak failed at 'full cache' (cuda-oom: out of memory); reproducer: soak/trial-00001.json of the run"
    assert answer.finalists[0].obstacle == obstacle
    text = printed(answer)
    assert text.startswith("Winner: trial 0:")
    assert obstacle in text


def test_when_all_failed_nobody_wins(run: Run) -> None:
    broken(run, 1)
    broken(run, 0)
    answer = best(run.path)
    assert (answer.decision, answer.trial, answer.soak) == ("no clear winner", 1, "failed")
    assert "trial 0: soak failed at 'full cache'" in answer.reason
    text = printed(answer)
    assert "vllm serve" not in text
    assert "Soak: " not in text


def test_the_interval_is_told_before_the_soak(run: Run) -> None:
    broken(run, 2)
    (last,) = [one for one in best(run.path).finalists if one.trial == 2]
    assert last.obstacle is not None
    assert last.obstacle.startswith("its interval, ")
    assert last.soak == "failed"


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("passed", "Soak: passed its normal load and the worst batches that the scheduler can form."),
        ("not run", "Soak: not run; `chunksmith soak` does it."),
    ],
)
def test_one_line_says_whether_the_winner_was_soaked(run: Run, state: str, line: str) -> None:
    if state == "passed":
        soaked(run, 1)
    answer = best(run.path)
    assert answer.trial == 1
    assert line in printed(answer).splitlines()
    data = json.loads(answer.to_json())
    assert data["soak"] == data["finalists"][0]["soak"] == state


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("{}", "is not the record of a soak"), ("[]", "is not the record")]
)
def test_a_record_that_cannot_be_read_is_one_line(run: Run, text: str, message: str) -> None:
    soaked(run, 1)
    path = soak_path(run.path, 1)
    path.write_text(text)
    with pytest.raises(ChunksmithError, match=message) as caught:
        best(run.path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
