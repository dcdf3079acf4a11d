"""``chunksmith report RUN``: the run as one HTML file, and its plots as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.arguments import RunArgument, address_of
from orchestrator.errors import UserError


def report(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; report.html in the run if left out, NAME.html here for an address."
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Folder: write each plot into it as a PNG file too. Needs Chromium or Chrome.")
    ] = None,
) -> None:
    """Write one HTML file that shows a run's answer, its plots and all trials, and needs no network.

    Example: chunksmith report runs/cpu-demo -o demo.html --png plots
    """
    from orchestrator.analysis.report import report as write_report
    from orchestrator.cli.output import write_output

    if png is not None and png.exists() and not png.is_dir():
        raise UserError(f"--png: {png} is a file; name a folder for the pictures.")
    path = output or (Path(f"{run.name}.html") if address_of(run) else run / "report.html")
    write_output(path, write_report(run))
    typer.echo(str(path))
    if png is not None:
        _write_pictures(run, png)


def _write_pictures(run: Path, folder: Path) -> None:
    from orchestrator.analysis.report import pictures
    from orchestrator.cli.output import naming

    images = pictures(run)
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        path = folder / name
        with naming(path):
            path.write_bytes(image)
        typer.echo(str(path))
