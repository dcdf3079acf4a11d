"""What a sweep shows where there is no terminal."""

from __future__ import annotations

import io
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from orchestrator.measurement.stats import RatioInterval
from orchestrator.sweep import Progress
from orchestrator.sweep.progress import CONFIRM


def interval(ratio: float) -> RatioInterval:
    return RatioInterval(ratio, ratio - 0.01, ratio + 0.01, pairs=4, level=0.95, sd_log=math.nan, dof=0)


def test_plain_lines_tell_the_best_so_far_once_for_each_change() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, width=200), total=9, finalists=0) as progress:
        for ratio in (0.8, 0.8, 0.7, 0.7):
            progress.best_so_far({"mla_workspace_rows": round(1000 * ratio)}, interval(ratio))
    assert output.getvalue() == (
        "best so far: 0.800 (0.790 to 0.810) at mla_workspace_rows=800\n"
        "best so far: 0.700 (0.690 to 0.710) at mla_workspace_rows=700\n"
    )


def test_trials_that_run_at_a_time_have_times_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    output, now = io.StringIO(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress(Console(file=output, width=200), total=4, finalists=0) as progress:
        progress.begin("trial 0", {"rows": 0})
        now[0] = 10.0
        progress.begin("trial 1", {"rows": 1})
        # An engine has started for the second: what that took is no part of it, and the first is not touched.
        now[0] = 14.0
        progress.engine_is_warm("engine-2 warm", "trial 1")
        now[0] = 20.0
        progress.end("trial 1", {"rows": 1}, "0.9")
        progress.end("trial 0", {"rows": 0}, "0.8")
    # Two more, at 13 s each, two at a time.
    assert output.getvalue() == (
        "engine: engine-2 warm\n"
        "trial 1 (1 of 4): rows=1: 0.9 (6.0 s, 9 s left)\n"
        "trial 0 (2 of 4): rows=0: 0.8 (20.0 s, 13 s left)\n"
    )


def test_a_confirmation_takes_what_its_engine_starts_take(monkeypatch: pytest.MonkeyPatch) -> None:
    output, now = io.StringIO(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress(Console(file=output, width=200), total=1, finalists=3) as progress:
        progress.begin("trial 0", {"rows": 0})
        now[0] = 10.0
        progress.end("trial 0", {"rows": 0}, "0.9")
        progress.phase = CONFIRM
        for number in range(2):
            progress.begin(f"confirming trial {number}", {"rows": 0})
            now[0] += 50.0
            progress.engine_is_warm(f"engine-{number} warm")
            now[0] += 10.0
            progress.end(f"confirming trial {number}", {"rows": 0}, "0.8")
    told = [line.rpartition("(")[2] for line in output.getvalue().splitlines() if " of 4)" in line]
    assert told == ["10.0 s, 30 s left)", "60.0 s, 2 min left)", "60.0 s, 60 s left)"]


def test_any_thread_may_report() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, width=200), total=200, finalists=0) as progress:

        def trial(number: int) -> None:
            label = f"trial {number}"
            progress.begin(label, {"rows": number})
            progress.end(label, {"rows": number}, "1.0")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(trial, range(200)))
    assert progress.done == 200
    assert len(output.getvalue().splitlines()) == 200


def test_a_terminal_shows_some_of_many() -> None:
    progress = Progress(Console(file=io.StringIO(), width=200), total=20, finalists=0)
    for number in range(10):
        progress.begin(f"trial {number}", {"rows": number})
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(progress._render())
    shown = console.export_text()
    assert "trial 0: rows=0" in shown
    assert "trial 9" not in shown
    assert "and 2 more" in shown
