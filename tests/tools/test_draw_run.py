"""The picture of the README against what the command prints."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tools.draw_run import END_S, PICTURE, PROMPT, ROOT, picture, printed, timed


def test_the_picture_is_what_the_command_prints_in_thirty_seconds() -> None:
    lines = timed(printed())
    assert PICTURE.read_text(encoding="utf-8") == picture(lines), "run: python -m tools.draw_run"
    seconds = [second for second, _ in lines]
    assert seconds == sorted(seconds)
    assert seconds[-1] < END_S
    shown = [element.text for element in ElementTree.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text")]
    assert shown[0] == PROMPT
    assert sum("of the baseline" in (line or "") for line in shown) == 24
    assert any((line or "").startswith("Winner: trial ") for line in shown)


def test_it_loads_nothing_and_names_no_folder_of_a_machine() -> None:
    text = PICTURE.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in text
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
