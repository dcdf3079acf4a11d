"""``chunksmith why RUN TRIAL``: what happened at a point."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.arguments import AsJson, RunArgument


def why(
    run: RunArgument,
    trial: Annotated[int | None, typer.Argument(help="Number of the trial; the best one's if left out.")] = None,
    json_: AsJson = False,
) -> None:
    """Print what planner and scheduler did at a trial's point, beside the baseline: chunks, padding, workspace, KV
    blocks.

    Example: chunksmith why runs/cpu-demo 20
    """
    from orchestrator.analysis import best
    from orchestrator.analysis.why import why as explain_trial
    from orchestrator.cli.tables import point_text, show_json, show_table
    from orchestrator.errors import ChunksmithError

    if trial is None:
        answer = best(run)
        if answer.trial is None:
            raise ChunksmithError(f"{run}: {answer.reason}; name a trial.")
        trial = answer.trial
    found = explain_trial(run, trial)
    if json_:
        show_json(found)
        return
    typer.echo(f"trial {found.trial}: {point_text(found.point)}")
    typer.echo(found.outcome + (f": {found.failure}" if found.failure else ""))
    if found.ratio is not None:
        typer.echo(f"ratio to the baseline {found.ratio:.3f}, means over {found.blocks} blocks:")

    def amount(value: float) -> str:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    rows = [
        [counter.name, amount(counter.candidate), amount(counter.baseline), counter.unit, counter.meaning]
        for counter in found.counters
    ]
    show_table(["counter", "point", "baseline", "unit", "meaning"], rows, numbers=["point", "baseline"])
    if found.kv_blocks is not None:
        typer.echo(f"KV blocks: {found.kv_blocks:,}")
