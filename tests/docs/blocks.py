"""The fenced blocks of the README and of the pages under docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
LANGUAGES = {"bash", "python", "text", "yaml"}
"""``text`` is what a program printed, or a tree of files."""

_FENCE = re.compile(r"^\s*```(?P<language>\w*)\s*$")
_MARKER = re.compile(r"^<!-- not run: (?P<reason>.+) -->$")


@dataclass(frozen=True)
class Block:
    """A block. ``reason`` is why nobody runs it, from ``<!-- not run: REASON -->`` on the line before; else empty."""

    page: str
    line: int
    language: str
    text: str
    reason: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines of a bash block, joined where they end with a backslash."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip() and line.strip()[0] != "#"]


def blocks_of(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if begin is None:
            begin = (number, fence["language"])
            continue
        first, language = begin
        marker = _MARKER.match(lines[first - 1]) if first else None
        text = "\n".join(lines[first + 1 : number]) + "\n"
        page = str(path.relative_to(ROOT))
        yield Block(page, first + 1, language, text, marker["reason"] if marker else "")
        begin = None
    assert begin is None, f"{path}: a block that does not end"
