from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.analysis import best
from tests.analysis.runs import Run
from tests.analysis.test_best import printed

SPACE = {"load.concurrency": {"scope": "load", "values": [1, 8]}}


def trial(run: Run, number: int, concurrency: int, rows: int, ratio: float, **changes: Any) -> None:
    point = {"mla_workspace_rows": rows, "load.concurrency": concurrency}
    ends = {"ratio": ratio, "ratio_low": 0.98 * ratio, "ratio_high": 1.02 * ratio, "pairs": 4}
    run.trial(number, point=point, **{**ends, **changes})


def test_each_load_has_its_best_configuration(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", space=SPACE)
    trial(run, 0, 1, 128, 0.9)
    trial(run, 1, 8, 128, 0.7)
    trial(run, 2, 1, 256, 0.8)
    trial(run, 3, 8, 256, 0.6, outcome="failed", failure="cuda-oom")
    trial(run, 4, 8, 512, 0.75)
    answer = best(run.path)
    assert [(one.load, one.trial, one.point, one.ratio) for one in answer.by_load] == [
        ({"load.concurrency": 1}, 2, {"mla_workspace_rows": 256}, 0.8),
        ({"load.concurrency": 8}, 1, {"mla_workspace_rows": 128}, 0.7),
    ]
    text = printed(answer)
    assert "Best median_ttft_ms of the search at each load, not confirmed as such:\n" in text
    assert "  load.concurrency=8: 0.70 (0.69 to 0.71) at mla_workspace_rows=128 (trial 1)\n" in text


def test_more_is_better_when_maximizing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", space=SPACE, metric="request_throughput", direction="maximize")
    trial(run, 0, 1, 128, 1.2)
    trial(run, 1, 1, 256, 1.4)
    assert [one.trial for one in best(run.path).by_load] == [1]


def test_without_such_knobs_nothing_is_said(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.trial(0)
    answer = best(run.path)
    assert answer.by_load == ()
    assert "each load" not in printed(answer)


def test_the_baseline_under_any_load_is_no_finalist(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", space=SPACE, baseline={"mla_workspace_rows": 128})
    trial(run, 0, 8, 128, 0.4)
    run.finalist(1, 0.7)
    trial(run, 1, 8, 256, 0.7)
    assert [one.trial for one in best(run.path).finalists] == [1]
