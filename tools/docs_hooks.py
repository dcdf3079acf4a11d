"""What mkdocs calls while it builds the pages: links that leave ``docs`` become the path of the file."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """The page's text, with what is not on the site named by its path in the repository.

    Args:
        page: mkdocs' page; ``page.file.src_uri`` is its path below ``docs``.
    """
    return without_outside_links(markdown, page.file.src_uri)


def without_outside_links(markdown: str, source: str) -> str:
    """Replace each link from ``source``, a path below ``docs``, to a file outside of it."""

    def replace(match: re.Match[str]) -> str:
        target = match["target"].partition("#")[0]
        if not target or ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not path.startswith("../"):
            return match[0]
        path, text = path.removeprefix("../"), match["text"]
        return f"`{path}`" if text.strip("`./") == path.strip("`./") else f"{text} (`{path}`)"

    return _LINK.sub(replace, markdown)
