"""``chunksmith compare RUN RUN``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.arguments import AsJson, run_argument
from orchestrator.cli.output import note


def compare(
    before: Annotated[Path, run_argument("Folder of the earlier run, or its address.")],
    after: Annotated[Path, run_argument("Folder of the later run, or its address.")],
    json_: AsJson = False,
) -> None:
    """Compare two runs point by point, for instance before and after an upgrade of vLLM; regressions come first.

    Example: chunksmith compare runs/vllm-031 runs/vllm-032
    """
    from orchestrator.analysis.compare import compare as compare_runs
    from orchestrator.cli.tables import interval, point_text, show_json, show_table

    found = compare_runs(before, after)
    if json_:
        show_json(found)
        return
    rows = [
        [
            "baseline" if change.point is None else point_text(change.point),
            f"{change.before:.4g}",
            f"{change.after:.4g}",
            f"{change.ratio:.3f}",
            interval(change.low, change.high),
            change.verdict,
        ]
        for change in found.changes
    ]
    heads = ["point", "before", "after", "ratio", "interval", "verdict"]
    show_table(heads, rows, numbers=["before", "after", "ratio"])
    note(
        f"\n{found.metric}; all intervals hold at once with 95 %. Not measured in turns: a change may lie in the "
        "machine or its day, and the baseline's own line shows how much."
    )
    if any(found.only):
        typer.echo(f"Points that only one has: {found.only[0]} of {before}, {found.only[1]} of {after}.")
    for name, there, here in found.provenance:
        typer.echo(f"{name}: {there} -> {here}")
