"""``chunksmith knee RUN``: the smallest workspace that is good enough, and the front of memory against time."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.arguments import AsJson, RunArgument
from orchestrator.cli.output import note


def knee(
    run: RunArgument,
    loss: Annotated[float, typer.Option(min=0.0, help="By which share the ratio may be worse than the best.")] = 0.02,
    json_: AsJson = False,
) -> None:
    """Print the points of which no other has as small a workspace and as good a ratio, and which of them is the knee.

    Example: chunksmith knee runs/cpu-demo --loss 0.05
    """
    from orchestrator.analysis.knee import find_knee, front
    from orchestrator.analysis.points import read_points
    from orchestrator.cli.tables import interval, show_json, show_table
    from orchestrator.errors import ChunksmithError

    points = read_points(run).require(1)
    found = find_knee(points.frame, minimize=points.spec.minimize, loss=loss)
    if found is None:
        raise ChunksmithError(f"{run}: no complete trial has a known workspace.")
    best = front(points.frame, minimize=points.spec.minimize)
    if json_:
        columns = ["trial", "ratio", "ratio_low", "ratio_high", "workspace_rows", "workspace_bytes"]
        show_json({"knee": found, "front": best[columns].astype(object).to_dict("records")})
        return
    rows = [
        [
            str(row["trial"]),
            f"{row['workspace_bytes'] / 2**20:,.2f}",
            f"{row['ratio']:.3f}",
            interval(row["ratio_low"], row["ratio_high"]),
            row["point"],
            "knee" if row["trial"] == found.trial else "",
        ]
        for row in best.to_dict("records")
    ]
    show_table(["trial", "MiB", "ratio", "interval", "point", ""], rows, numbers=["trial", "MiB", "ratio"])
    note(f"The knee is the smallest workspace within {loss:.1%} of the best ratio. Ratios of the search.")
