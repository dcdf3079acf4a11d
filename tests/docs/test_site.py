"""The documentation as pages: it builds without a warning, loads nothing from elsewhere, and no link is dead."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.docs.blocks import PAGES, ROOT
from tools.docs_hooks import without_outside_links

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Resources(HTMLParser):
    """Addresses of what a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}.get(tag)
        self.found += [value for name, value in attrs if name == wanted and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages; ``strict`` makes a warning an error."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


def test_every_page_is_built_and_fetches_nothing_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    for path in PAGES:
        if path.parent != ROOT and path.name != "README.md":
            assert site / path.relative_to(ROOT / "docs").with_suffix(".html") in pages
    for page in pages:
        parser = Resources()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.found
        for address in parser.found:
            assert not re.match(r"(https?:)?//", address), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(.?https?:|@import", sheet.read_text(encoding="utf-8")), sheet.name


def test_a_link_out_of_the_docs_is_the_path_of_the_file(site: Path) -> None:
    page = (site / "how-to/cluster.html").read_text(encoding="utf-8")
    assert "<code>deploy/cluster-aws.yaml</code>" in page
    assert "../../deploy" not in page


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[x](../../results/a.md)", "x (`results/a.md`)"),
        ("[results/a.md](../../results/a.md#b)", "`results/a.md`"),
        ("[`a.yaml`](../../a.yaml)", "`a.yaml`"),
        ("[x](soak.md#y) [x](../peers.md) [x](#y)", "[x](soak.md#y) [x](../peers.md) [x](#y)"),
        ("[x](https://a.b/../../..)", "[x](https://a.b/../../..)"),
        ("![x](../concepts/x.svg)", "![x](../concepts/x.svg)"),
    ],
)
def test_only_links_out_of_the_docs_are_replaced(markdown: str, expected: str) -> None:
    assert without_outside_links(markdown, "how-to/bench.md") == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    for match in _LINK.finditer(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        target = match["target"].partition("#")[0]
        if target and ":" not in target:
            assert (page.parent / target).exists(), match[0]
