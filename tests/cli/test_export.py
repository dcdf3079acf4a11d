"""``chunksmith export``, as typed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.cli import main
from tests.analysis.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.finalist(1, 0.66)
    return run


def test_a_script_can_be_started(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "serve.sh"
    assert main(["export", str(run.path), "-o", str(script)]) == 0
    assert os.access(script, os.X_OK)
    assert f"{script}: trial 1, winner: 0.66" in capsys.readouterr().err


def test_without_output_it_is_printed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.path), "--format", "yaml"]) == 0
    assert "mla_workspace_rows: 256" in capsys.readouterr().out


@pytest.mark.vllm
def test_vllm_itself_can_be_asked(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.trial(1, serve_args=["org/model", "--max-num-seqs", "4"], env='{"VLLM_CPU_KVCACHE_SPACE": "1"}')
    assert main(["export", str(run.path), "--check"]) == 0
    assert "accepts the arguments" in capsys.readouterr().err
    run.trial(1, serve_args=["org/model", "--max-num-seq-typo", "4"], env="{}")
    assert main(["export", str(run.path), "--check"]) == 1
    assert "refuses the arguments: unrecognized arguments: --max-num-seq-typo" in capsys.readouterr().err
    run.trial(1, serve_args=["org/model"], env='{"VLLM_NO_SUCH_THING": "1"}')
    assert main(["export", str(run.path), "--check"]) == 1
    assert "does not know the environment variable VLLM_NO_SUCH_THING" in capsys.readouterr().err


def test_an_unknown_format_is_the_users_mistake(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.path), "--format", "helm"]) == 2
    assert "unknown format 'helm'" in capsys.readouterr().err
