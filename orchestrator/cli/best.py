"""``chunksmith best RUN``: which point to deploy, if any."""

from __future__ import annotations

import typer

from orchestrator.cli.arguments import AsJson, RunArgument


def best(
    run: RunArgument,
    json_: AsJson = False,
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
