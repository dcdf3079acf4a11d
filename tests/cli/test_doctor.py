from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from orchestrator.cli import main


class FaultyFinder:
    """Says that ray is not there, as on a machine where it was never installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrator.cli", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in report["checks"]}


def test_this_environment_can_run_the_main_job() -> None:
    done = doctor("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    checks = by_name(report)
    assert report["ok"] is True
    assert checks["vllm"]["found"] == "0.32.0"
    assert checks["plugin and vLLM"]["found"] == "vLLM 0.32.0 is known"
    assert checks["plugin entry point"]["found"] == "orchestrator.vllm_plugin:register"
    assert checks["torch build"]["found"].startswith("2.13.0+cpu, CPU only")
    assert f", {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, " in checks["cpu"]["found"]


@pytest.mark.vllm
def test_every_core_dependency_is_looked_at() -> None:
    from orchestrator.cli import doctor_checks

    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    names = {Requirement(line).name for line in pyproject["project"]["dependencies"]}
    assert names <= {check.name for check in doctor_checks.libraries()}


@pytest.mark.vllm
def test_a_hidden_ray_is_exit_code_1_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Whatever else imports ray has it by then, and keeps it.
    assert main(["doctor"]) == 0
    capsys.readouterr()
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [FaultyFinder, *sys.meta_path])
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if line.split()[1] == "ray"]
    assert line.startswith("fail")
    assert "No module named 'ray'" in line
    assert "pip install --no-deps 'ray==2.60.0'" in line
    assert lines[-1] == "The main job cannot run here: mend what says fail."


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("version", "state", "advice"),
    [
        (None, "fail", "-m pip install --no-deps 'optuna==5.0.0'"),
        ("3.0.0", "fail", "-m pip install --no-deps 'optuna==5.0.0'"),
        ("5.1.0", "note", "not the version that was tested; for that: "),
        ("5.0.0", "ok", ""),
    ],
)
def test_a_library_is_judged_by_the_lower_bound_and_the_lock(
    monkeypatch: pytest.MonkeyPatch, version: str | None, state: str, advice: str
) -> None:
    from orchestrator.cli import doctor_checks

    monkeypatch.setattr(doctor_checks, "_installed", lambda name: (name, version if name == "optuna" else "99"))
    [check] = [check for check in doctor_checks.libraries() if check.name == "optuna"]
    assert check.state == state
    assert advice in check.advice
    assert bool(check.advice) == (state != "ok")


def test_little_shared_memory_is_a_note_with_the_container_option(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.cli import doctor_checks

    monkeypatch.setattr(doctor_checks, "MIN_SHM_BYTES", 1 << 60)
    check = doctor_checks.shared_memory()
    assert check.state == "note"
    assert "--shm-size" in check.advice


def test_gpus_are_named_with_their_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in nvidia-smi, because most machines that run the tests have no GPU."""
    from orchestrator.cli import doctor_checks

    program = tmp_path / "nvidia-smi"
    line = "echo '0, NVIDIA H200, GPU-1, 143771, 580.1, 9.0'"
    program.write_text(f"#!/bin/sh\n{line}\n{line}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    checks = {check.name: check for check in doctor_checks.machine()}
    assert (checks["gpus"].state, checks["gpus"].found) == ("ok", "2: NVIDIA H200, 140 GiB; NVIDIA H200, 140 GiB")

    program.write_text("#!/bin/sh\necho 'cannot talk to the NVIDIA driver' >&2\nexit 9\n")
    checks = {check.name: check for check in doctor_checks.machine()}
    assert checks["gpus"].state == "note"
    assert "cannot talk to the NVIDIA driver" in checks["gpus"].found
