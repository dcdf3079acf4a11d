"""The concept page: its code runs, and its picture is the one that the code draws."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[2] / "docs" / "concepts"


def test_the_examples_of_the_page_hold() -> None:
    page = (FOLDER / "chunks-and-workspace.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for block in blocks:
        assert "assert" in block
        exec(compile(block, "chunks-and-workspace.md", "exec"), names)


def test_the_picture_is_up_to_date() -> None:
    drawn = runpy.run_path(str(FOLDER / "chunks_and_workspace.py"))["picture"]()
    assert drawn == (FOLDER / "chunks_and_workspace.svg").read_text(encoding="utf-8")


def test_the_picture_shows_the_areas() -> None:
    root = ElementTree.parse(FOLDER / "chunks_and_workspace.svg").getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("6 x 25,807 = 154,842") == 3
    assert "6 x 1,057 = 6,342" in texts
