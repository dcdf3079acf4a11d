"""``chunksmith dashboard RUN``: Optuna's dashboard over a run."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.arguments import RunFolderArgument
from orchestrator.cli.output import is_quiet


def dashboard(
    run: RunFolderArgument,
    host: Annotated[str, typer.Option(help="Address to listen on; the default is reachable from here alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
) -> None:
    """Serve Optuna's dashboard for a run, also during the sweep, until Ctrl-C. It only reads.

    Example: chunksmith dashboard runs/cpu-demo --port 8080
    """
    from orchestrator.analysis.dashboard import Dashboard
    from orchestrator.records import RunFolder

    server = Dashboard(RunFolder.open(run), host=host, port=port)
    typer.echo(server.url if is_quiet() else f"{server.url} (Ctrl-C ends it)")
    server.serve()
