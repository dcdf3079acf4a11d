"""``chunksmith doctor``: what is installed, what this machine can run, and what to do about each thing missing."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.arguments import AsJson

if TYPE_CHECKING:
    from orchestrator.cli.doctor_checks import Check

_COLOURS = {"ok": "green", "note": "yellow", "fail": "bold red"}


def doctor(
    as_json: AsJson = False,
) -> None:
    """Say what is installed and what this machine can run. Exit code 1 if the main job cannot run.

    Example: chunksmith doctor
    """
    # vLLM logs to stdout as it is imported, which would spoil both outputs.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    from orchestrator.cli.doctor_checks import all_checks

    checks = list(all_checks())
    able = all(check.state != "fail" for check in checks)
    if as_json:
        typer.echo(json.dumps({"ok": able, "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        _show(checks)
        typer.echo(
            "The main job can run here: make sweep" if able else "The main job cannot run here: mend what says fail."
        )
    if not able:
        raise typer.Exit(1)


def _show(checks: list[Check]) -> None:
    """A table on a terminal; elsewhere one line for each check, which grep can use."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        for check in checks:
            expected = f"  ({check.expected})" if check.expected else ""
            advice = f"  -> {check.advice}" if check.advice else ""
            typer.echo(f"{check.state:<4}  {check.name:<18}  {check.found}{expected}{advice}")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found", "expected", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        state = Text(check.state, style=_COLOURS[check.state])
        table.add_row(state, check.name, Text(check.found), Text(check.expected), Text(check.advice))
    console.print(table)
