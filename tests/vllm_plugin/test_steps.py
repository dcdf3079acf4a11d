"""The page in which a scheduler counts its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.vllm_plugin import STEPS_FILE_ENV, make_steps_file
from orchestrator.vllm_plugin.steps import Steps


def test_each_step_changes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps"
    make_steps_file(path)
    monkeypatch.setenv(STEPS_FILE_ENV, str(path))
    steps, seen = Steps(), {path.read_bytes()}
    for _ in range(3):
        steps.count()
        seen.add(path.read_bytes())
    assert len(seen) == 4
    path.unlink()
    steps.count()


@pytest.mark.parametrize("content", [None, b"", b"\0"])
def test_without_a_whole_file_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "steps"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(STEPS_FILE_ENV, str(path))
    Steps().count()
    assert (path.read_bytes() if path.exists() else None) == content
    monkeypatch.delenv(STEPS_FILE_ENV)
    Steps().count()
