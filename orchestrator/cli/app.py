"""Joins the subcommands, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator import __version__
from orchestrator.cli.bench import bench
from orchestrator.cli.best import best
from orchestrator.cli.chunks import chunks
from orchestrator.cli.compare import compare
from orchestrator.cli.dashboard import dashboard
from orchestrator.cli.doctor import doctor
from orchestrator.cli.explain import explain
from orchestrator.cli.export import export
from orchestrator.cli.frontier import frontier
from orchestrator.cli.init import init
from orchestrator.cli.knee import knee
from orchestrator.cli.models import model
from orchestrator.cli.output import may_colour, with_quiet
from orchestrator.cli.records import records
from orchestrator.cli.report import report
from orchestrator.cli.sensitivity import sensitivity
from orchestrator.cli.size import size
from orchestrator.cli.soak import soak
from orchestrator.cli.sweep import sweep
from orchestrator.cli.validate import validate
from orchestrator.cli.watch import watch
from orchestrator.cli.why import why
from orchestrator.errors import ChunksmithError

_DISK_ERRORS = frozenset({errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS})

_OF_REPORT = frozenset({"jinja2", "kaleido", "plotly"})
"""Libraries of the extra ``report``."""

app = typer.Typer(
    name="chunksmith",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunksmith {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tune vLLM's MLA prefill chunks and workspace, and say which configuration to deploy."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(best)
app.command()(export)
app.command()(report)
app.command()(dashboard)
app.command()(knee)
app.command()(sensitivity)
app.command()(why)
app.command()(compare)
app.command()(frontier)
app.command()(watch)
app.command()(doctor)
app.command()(model)
app.command()(size)
app.command()(chunks)
app.command()(explain)
app.command()(init)
app.command()(validate)
app.command()(sweep)
app.command()(soak)
app.command()(bench)
app.add_typer(records, name="records")


def _add_quiet(group: typer.Typer) -> None:
    """Give every command the option ``--quiet``, those of groups too."""
    for command in group.registered_commands:
        if command.callback is not None:
            command.callback = with_quiet(command.callback)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _add_quiet(inner.typer_instance)


_add_quiet(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; ``sys.argv[1:]`` if omitted.

    Returns:
        The exit code: 0, 1 for trouble, 2 for a user's mistake, 130 after Ctrl-C. A programming error is not caught.
    """
    try:
        result = app(arguments, prog_name="chunksmith", standalone_mode=False)
    except ChunksmithError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "orchestrator":
            raise
        return _fail(_missing(error.name.split(".")[0]), 1)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        return _fail(f"{error.strerror}: {error.filename or 'the file being written'}", 1)
    return result if isinstance(result, int) else 0


def _missing(library: str) -> str:
    extra = "pip install 'chunksmith[report]'" if library in _OF_REPORT else "chunksmith doctor"
    return f"the library {library!r} is missing; see: {extra}"


def _fail(message: str, exit_code: int) -> int:
    error = typer.style("error:", fg="red", bold=True) if may_colour(sys.stderr) else "error:"
    typer.echo(f"chunksmith: {error} {' '.join(message.split())}", err=True)
    return exit_code
