"""Arguments and options that several commands have, and what a shell completes them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.errors import UserError

_RUNS = Path("runs")
_SPECS = Path("search_spaces")
_COPIES: dict[Path, str] = {}


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs that begin with what was typed, and while that has no slash those in ``runs/`` too."""
    near = Path().glob(f"{incomplete}*") if incomplete else ()
    return sorted({str(path) for path in (*_RUNS.glob("*"), *near) if _begins(path, incomplete) and _is_run(path)})


def complete_spec(incomplete: str) -> list[str]:
    """YAML files that begin with what was typed, those of ``search_spaces/`` among them."""
    near = Path().glob(f"{incomplete}*") if incomplete else Path().glob("*.yaml")
    files = (path for path in (*_SPECS.glob("*.yaml"), *near) if path.suffix in (".yaml", ".yml"))
    return sorted({str(path) for path in files if _begins(path, incomplete)})


def complete_from(words: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Complete with those of the words that begin with what was typed. They are made when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return complete


def _models() -> Sequence[str]:
    from orchestrator.planning.models import MODELS

    return sorted(MODELS)


def _begins(path: Path, incomplete: str) -> bool:
    return str(path).startswith(incomplete)


def _is_run(path: Path) -> bool:
    # A name with a dot is that of a run that is being made.
    return not path.name.startswith(".") and (path / "spec.yaml").is_file() and (path / "trials").is_dir()


complete_model = complete_from(_models)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as one JSON document.")]
"""Option of every command whose answer is more than a path, a file's text or an address."""


def run_argument(text: str, *, is_read: bool = True) -> Any:
    """An argument that names a run, or several.

    Args:
        text: Its help.
        is_read: The command only reads the records, so that an address in an object storage does too: the function gets
            the folder of a copy, which is removed afterwards. Otherwise an address is a mistake.
    """
    check = _fetched if is_read else _as_folder
    return typer.Argument(
        help=text, show_default=False, autocompletion=complete_run, parser=_path_or_address, callback=check
    )


def address_of(run: Path) -> str | None:
    """The address of which the folder is a copy, which goes when the command ends; None for the user's own folder."""
    return _COPIES.get(run)


def _path_or_address(text: str) -> Path | str:
    return text if "://" in text else Path(text)


def _fetched(context: typer.Context, given: Any) -> Any:
    if isinstance(given, list):
        return [_fetched(context, one) for one in given]
    # A shell that completes a line must not wait for a network.
    if not isinstance(given, str) or context.resilient_parsing:
        return given
    from orchestrator.records.remote import snapshot

    run = context.with_resource(snapshot(given)).path
    _COPIES[run] = given.rstrip("/")
    return run


def _as_folder(context: typer.Context, given: Any) -> Any:
    if isinstance(given, str) and not context.resilient_parsing:
        from orchestrator.records.masking import mask

        raise UserError(f"{mask(given)}: is an address; this command needs the run folder itself.")
    return given


RunArgument = Annotated[
    Path, run_argument("Folder of the run, runs/<study>, or its address, s3://bucket/runs/<study>.")
]
"""The run that a command reads."""

RunFolderArgument = Annotated[Path, run_argument("Folder of the run, runs/<study>.", is_read=False)]
"""The run that a command works in."""
