"""Writes docs/reference from the code: the commands with their options, and the columns of the tables.

python -m tools.write_reference           # write
python -m tools.write_reference --check   # exit code 1 where a page is not what the code says
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import typer.main

from orchestrator.cli.app import app
from orchestrator.records import SCHEMA_VERSION, SCHEMAS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
HOW_RUN = {
    "bench": "runs in make test-docs with: server",
    "dashboard": "runs with: lab-run, ctrl-c",
    "doctor": "runs in make test-docs with: own-process",
    "records fetch": "runs with: s3-with-runs",
    "records mirror": "runs with: s3",
    "soak": "runs in make test-docs with: engine",
    "sweep": "runs in make test-docs with: short-sweeps",
}
"""What the tests of the pages need to run an example (tests/docs/providers.py); the others they run as they stand."""
_WRITTEN = "This page is written from the code by `python -m tools.write_reference`."


def commands() -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands", "", _WRITTEN, ""]
    for name, command in sorted(_commands(typer.main.get_command(app))):
        context = typer.Context(command, info_name=f"chunksmith {name}")
        text, _, example = (command.help or "").partition("Example:")
        lines += [f"## chunksmith {name}", "", *text.strip().splitlines(), ""]
        usage = " ".join(command.collect_usage_pieces(context))
        lines += ["```text", f"chunksmith {name} {usage}", "```", ""]
        if name in HOW_RUN:
            lines.append(f"<!-- {HOW_RUN[name]} -->")
        lines += ["```bash", example.strip(), "```", ""]
        lines += ["| argument or option | default | meaning |", "|---|---|---|"]
        for parameter in command.get_params(context):
            if "--help" in parameter.opts:
                continue
            lines.append(f"| {_names(parameter)} | {_default(parameter)} | {_cell(parameter.help or '')} |")
        lines.append("")
    return "\n".join(lines)


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its name, those of a group under the group's own."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def records() -> str:
    """Every column of every table, with its type and unit."""
    lines = ["# Tables of a run", "", _WRITTEN, ""]
    lines += [
        f"Schema version {SCHEMA_VERSION}; every row says in `schema_version` which one wrote it, and rows of all "
        "versions can be read together. Each table is a folder of Parquet files: `pandas.read_parquet(folder)`.",
        "",
    ]
    for table, schema in SCHEMAS.items():
        lines += [f"## {table}", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        for field in schema:
            metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
            meaning = metadata.get("description", "")
            if values := metadata.get("values"):
                meaning += " One of " + ", ".join(f"`{value}`" for value in values.split("|")) + "."
            kind = "list of records" if str(field.type).startswith("list<element: struct") else str(field.type)
            kind += "" if field.nullable is False else ", may be null"
            lines.append(f"| `{field.name}` | {_cell(kind)} | {metadata.get('unit', '')} | {_cell(meaning)} |")
        lines.append("")
    return "\n".join(lines)


PAGES = {"commands.md": commands, "records.md": records}
"""What writes each page."""


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the pages, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="only say which pages are not what the code says")
    check = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{FOLDER / name}: {'not what the code says' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
