"""What a sweep shows where there is no terminal."""

from __future__ import annotations

import io
import math

from rich.console import Console

from orchestrator.measurement.stats import RatioInterval
from orchestrator.sweep import Progress


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
