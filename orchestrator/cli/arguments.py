"""Arguments and options that several commands have, and what a shell completes them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

_RUNS = Path("runs")
_SPECS = Path("search_spaces")


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
    return (path / "spec.yaml").is_file() and (path / "trials").is_dir()


complete_model = complete_from(_models)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as one JSON document.")]
"""Option of every command whose answer is more than a path, a file's text or an address."""

RunArgument = Annotated[
    Path, typer.Argument(help="Folder of the run, runs/<study>.", show_default=False, autocompletion=complete_run)
]
"""The run that a command reads."""
