"""What a run was made with. Programs named fake stand in for git or nvidia-smi to inject a fault or a GPU."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import collect, provenance


def fake_program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_facts_of_this_machine() -> None:
    facts = collect()
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["versions"]["pyarrow"] == metadata.version("pyarrow")
    assert facts["cpu"]["cores"] == os.cpu_count()
    assert facts["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["host"]["kernel"].startswith("Linux")
    age = datetime.now(UTC) - datetime.fromisoformat(facts["collected_at"])
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_every_null_has_its_reason() -> None:
    def check(facts: dict[str, Any]) -> None:
        for key, value in facts.items():
            if isinstance(value, dict):
                check(value)
            assert (value is None) == (f"{key}_reason" in facts), key

    check(collect())


def test_a_missing_distribution_is_null_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(provenance._DISTRIBUTIONS, "vllm", ("vllm-nowhere", "vllm-neither"))
    versions = collect()["versions"]
    assert versions["vllm"] is None
    assert versions["vllm_reason"] == "no distribution called vllm-nowhere or vllm-neither is installed"


def test_commit_of_our_own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As inside a git hook of another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = {key: value for key, value in os.environ.items() if key != "GIT_DIR"}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    assert "not a git repository" in provenance._source(tmp_path)["git_sha_reason"]
    git("init", "--quiet")
    (tmp_path / "a.py").write_text("a = 1\n")
    assert provenance._source(tmp_path)["git_sha"] is None
    git("add", "a.py")
    git("commit", "--quiet", "--message", "first")
    sha = git("rev-parse", "HEAD")
    assert provenance._source(tmp_path) == {"git_sha": sha, "git_dirty": False}
    (tmp_path / "b.py").write_text("b = 1\n")
    assert provenance._source(tmp_path) == {"git_sha": sha, "git_dirty": True}
    (tmp_path / "venv").mkdir()
    inner = provenance._source(tmp_path / "venv")
    assert inner["git_sha"] is None
    assert inner["git_sha_reason"] == "the source is not a git checkout of its own"


def test_without_git_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert collect()["source"]["git_sha_reason"] == "git is not installed"


def test_without_nvidia_smi_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert collect()["gpus"] == []


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_program(
        tmp_path,
        "nvidia-smi",
        "echo '0, NVIDIA H200, GPU-aa, 143771, 570.86.15, 9.0'\necho '1, Odd card, GPU-bb, [N/A], 570.86.15, [N/A]'",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    first, second = collect()["gpus"]
    assert first == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-aa",
        "driver": "570.86.15",
        "compute_capability": "9.0",
        "memory_bytes": 143771 * 2**20,
    }
    assert second["memory_bytes"] is None
    assert second["memory_bytes_reason"] == "nvidia-smi reports memory.total as [N/A]"
    assert second["driver"] == "570.86.15"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Failed to initialize NVML' >&2; exit 9", "nvidia-smi: exit code 9: Failed to initialize NVML"),
        ("echo 'what, is, this'", "nvidia-smi: 6 values were expected in 'what, is, this'"),
    ],
)
def test_a_driver_that_fails_is_null_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    fake_program(tmp_path, "nvidia-smi", script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    facts = collect()
    assert facts["gpus"] is None
    assert facts["gpus_reason"] == reason


@pytest.mark.parametrize("module", ["orchestrator.records", "orchestrator.analysis"])
def test_import_loads_no_framework(module: str) -> None:
    code = f"import {module}, sys; print([m for m in ('ray', 'torch', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
