from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.models import TinyMLAConfig, tiny_model_path


def test_prints_the_folder_of_the_model_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CHUNKSMITH_CACHE", str(tmp_path))
    assert main(["model", "--layers", "1", "--heads", "2", "--seed", "3"]) == 0
    folder = tiny_model_path(TinyMLAConfig(layers=1, heads=2, seed=3))
    assert folder.is_relative_to(tmp_path)
    assert capsys.readouterr().out == f"{folder}\n"
    assert (folder / "model.safetensors").exists()


def test_without_options_it_is_the_model_that_a_sweep_uses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CHUNKSMITH_CACHE", str(tmp_path))
    assert main(["model"]) == 0
    assert capsys.readouterr().out == f"{tiny_model_path()}\n"


def test_a_cache_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHUNKSMITH_CACHE", "/sys/kernel")  # root may not write there either
    assert main(["model"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("chunksmith: error: ")
    assert "/sys/kernel/models" in error
    assert error.count("\n") == 1
