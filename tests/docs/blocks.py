"""The fenced blocks of the README and of the pages under docs, and the comments that say how each is run.

Each is run: a block without a comment on the line before as it stands. Otherwise the comment is one of

- ``<!-- runs with: NEED, NEED -->``: what it needs is provided (``tests/docs/providers.py``);
- ``<!-- runs in make test-docs with: NEED -->``: the same, after ``make test``, for it takes minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
LANGUAGES = {"bash", "python", "text", "yaml"}
"""``text`` is what a program printed, or a tree of files."""

_FENCE = re.compile(r"^\s*```(?P<language>\w*)\s*$")
_COMMENT = re.compile(r"^<!-- runs(?P<long> in make test-docs)? with: (?P<needs>[\w, -]+) -->$")


@dataclass(frozen=True)
class Block:
    """A block.

    Attributes:
        needs: Names of what has to be provided.
        is_long: It takes too long for ``make test``.
    """

    page: str
    line: int
    language: str
    text: str
    needs: tuple[str, ...] = ()
    is_long: bool = False

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines of a bash block, joined where they end with a backslash."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip() and line.strip()[0] != "#"]

    def with_words(self, words: Mapping[str, str]) -> Block:
        """The block with other words in place of those that a page can only give as examples."""
        text = self.text
        for word, ours in words.items():
            text = text.replace(word, ours)
        return replace(self, text=text)


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
        text = "\n".join(lines[first + 1 : number]) + "\n"
        block = Block(str(path.relative_to(ROOT)), first + 1, language, text)
        yield _commented(block, lines[first - 1] if first else "")
        begin = None
    assert begin is None, f"{path}: a block that does not end"


def _commented(block: Block, line: str) -> Block:
    if not line.startswith("<!--"):
        return block
    comment = _COMMENT.match(line)
    assert comment is not None, f"{block.place}: a comment that says nothing known: {line}"
    needs = tuple(name.strip() for name in comment["needs"].split(",") if name.strip())
    return replace(block, needs=needs, is_long=comment["long"] is not None)
