"""``chunksmith report RUN``: the run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.arguments import RunArgument


def report(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; report.html in the run if left out.")
    ] = None,
) -> None:
    """Write one HTML file that shows a run's answer, its plots and all trials, and needs no network.

    Example: chunksmith report runs/cpu-demo -o demo.html
    """
    from orchestrator.analysis.report import report as write_report
    from orchestrator.cli.output import write_output

    path = output if output is not None else run / "report.html"
    write_output(path, write_report(run))
    typer.echo(str(path))
