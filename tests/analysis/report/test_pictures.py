"""The plots of a report as PNG files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from orchestrator.cli import main
from tests.analysis.runs import Run

SKY, WHITE = (0x56, 0xB4, 0xE9), (255, 255, 255)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run", space={"odd/../knob": {"scope": "engine", "values": [1, 2]}})
    for number, ratio in enumerate((0.9, 0.66, 0.8)):
        run.finalist(number, ratio)
        run.confirm(number, ratio, phase="search", pairs=3)
        point = {**run.point(number), "odd/../knob": number % 2 + 1}
        run.trial(number, ratio=ratio, ratio_low=ratio - 0.02, ratio_high=ratio + 0.02, point=point)
    return run


def test_every_plot_is_a_file_of_the_stated_size(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "plots" / "demo"
    assert main(["report", str(run.path), "-o", str(tmp_path / "demo.html"), "--png", str(folder)]) == 0
    names = ["pairs", "response-mla_workspace_rows", "response-odd-..-knob", "memory", "regions", "drift"]
    paths = [folder / f"{name}.png" for name in names]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "demo.html"), *map(str, paths)]
    assert sorted(folder.iterdir()) == sorted(paths)
    for path in paths:
        image = Image.open(io.BytesIO(path.read_bytes()))
        assert (image.format, image.size) == ("PNG", (1920, 1200))
        colours = image.convert("RGB").getcolors(2**24)
        assert colours is not None
        assert max(colours)[1] == WHITE
        assert sum(count for count, colour in colours if colour != WHITE) > 10_000
    response = Image.open(paths[1]).convert("RGB")
    assert SKY in {colour for _, colour in response.getcolors(2**24) or []}


def test_without_a_browser_there_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chromium")
    assert main(["report", str(run.path), "--png", str(tmp_path / "plots")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("chunksmith: error: pictures need Chromium or Chrome, and none is found here; on Debian: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "plots").exists()


def test_without_the_library_there_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    assert main(["report", str(run.path), "--png", str(tmp_path / "plots")]) == 1
    assert "the library 'kaleido' is missing; see: pip install 'chunksmith[report]'" in capsys.readouterr().err


def test_a_file_is_no_folder(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plots").write_text("mine")
    assert main(["report", str(run.path), "--png", str(tmp_path / "plots")]) == 2
    assert "is a file; name a folder for the pictures" in capsys.readouterr().err
    assert (tmp_path / "plots").read_text() == "mine"


def test_a_run_with_nothing_to_draw_needs_no_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chromium")
    run = Run(tmp_path / "run")
    assert main(["report", str(run.path), "--png", str(tmp_path / "plots")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
