"""What a command prints: its answer, the notes beside it, and the file that the user named for it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TextIO, TypeVar, get_type_hints

import typer

from orchestrator.errors import ChunksmithError, UserError

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
R = TypeVar("R")

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
_OPTION = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer alone: no progress, no notes.")]


def with_quiet(command: Callable[P, R]) -> Callable[P, R]:
    """The command with an option ``--quiet``, which :func:`is_quiet` tells while the command runs."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _QUIET.set(bool(kwargs.pop("quiet", False)))
        try:
            return command(*args, **kwargs)
        finally:
            _QUIET.reset(token)

    # typer reads the options from these two.
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_OPTION)
    run.__annotations__ = {**hints, "quiet": _OPTION}
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), quiet])  # type: ignore[attr-defined]
    return run


def is_quiet() -> bool:
    """Whether the user asked for the answer alone."""
    return _QUIET.get()


def note(text: str, *, err: bool = False) -> None:
    """Print a line that explains the answer and is no part of it; nothing with ``--quiet``."""
    if not is_quiet():
        typer.echo(text, err=err)


def progress_console(*, as_json: bool = False) -> Console:
    """Where progress goes: standard output; standard error where that is kept for JSON; nowhere with ``--quiet``."""
    from rich.console import Console

    return Console(stderr=as_json, quiet=is_quiet(), highlight=False)


def may_colour(stream: TextIO) -> bool:
    """Whether escape codes may go to a stream: a terminal that can show them, and no ``NO_COLOR`` (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write_output(path: Path, text: str) -> None:
    """Write the text, whole or not at all; a pipe or a device, such as ``/dev/stdout``, is written to and not replaced.

    Raises:
        UserError: It is a folder.
        ChunksmithError: The file system refused.
    """
    from orchestrator.records import write_text_atomic

    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file.")
    with naming(path):
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                file.write(text)
        else:
            write_text_atomic(path, text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into one line that names the file: the system itself often does not.

    Raises:
        ChunksmithError: It refused.
    """
    try:
        yield
    except OSError as error:
        raise ChunksmithError(f"{path}: cannot write: {error.strerror}.") from error
