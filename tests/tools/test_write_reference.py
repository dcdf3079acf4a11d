"""The reference pages against the code that they describe."""

from __future__ import annotations

import pytest

from orchestrator.cli.app import app
from orchestrator.records import SCHEMAS
from tools.write_reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    page = (FOLDER / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "run: python -m tools.write_reference"


def test_every_command_shows_an_example_and_explains_every_option() -> None:
    page = PAGES["commands.md"]()
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    for name in names:
        section = page.partition(f"## chunksmith {name}\n")[2].partition("\n## ")[0]
        assert section.count("chunksmith ") >= 2, f"{name} has no example"
        for line in section.splitlines():
            assert not line.endswith("|  |"), f"{name}: {line}"


def test_every_column_is_there() -> None:
    page = PAGES["records.md"]()
    for schema in SCHEMAS.values():
        for field in schema:
            assert f"| `{field.name}` |" in page
