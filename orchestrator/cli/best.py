"""``chunksmith best RUN``: which point to deploy, if any."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def best(
    run: Annotated[Path, typer.Argument(help="Folder of the run, runs/<study>.", show_default=False)],
    json_: Annotated[bool, typer.Option("--json", help="Print the answer as one JSON object.")] = False,
) -> None:
    """Print the best confirmed point of a run, how sure it is, and the command that deploys it.

    Example: chunksmith best runs/cpu-demo --json
    """
    from rich.console import Console

    from orchestrator.analysis import best as find_best

    answer = find_best(run)
    if json_:
        typer.echo(answer.to_json())
    else:
        answer.render(Console())
