"""A real engine in a real Ray actor: the cap is in force, and nothing outlives it, whoever dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cluster.failure_table import CLASSES

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
NOTHING = "0 processes, 0 files, 0 folders, 0 leases"


def play(scenario: str, folder: Path) -> list[str]:
    """Run a scenario of the child; return its lines. Ray keeps state for the life of a process, so that the session has
    one of its own."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "actor_child.py"), scenario, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_engine_in_an_actor(tmp_path: Path) -> None:
    refused, failed, *rest = play("killed", tmp_path)
    assert refused.startswith(
        "refused: resources: an engine with 64 GPUs and 1 CPU does not fit; the cluster has 1 node with 0 GPUs"
    )
    # vLLM says why in its log; what it raises is wrapped.
    assert failed.startswith("failed: invalid-config, not lost: ")
    assert "max_model_len" in failed
    assert failed.endswith(f"(to do: {CLASSES['invalid_config'].remedy})")
    assert rest == [
        "rows 256, bytes 294912",
        "rows 65536, bytes 75497472",
        "killed: engine-dead, lost",
        f"left: {NOTHING}",
    ]


@pytest.mark.soak
def test_a_stopped_engine_core_is_noticed(tmp_path: Path) -> None:
    # Before them Ray speaks of the actor's death.
    stopped, seconds, left = play("stopped", tmp_path)[-3:]
    assert re.match(r"stopped: hang, lost: process \d+ \(VLLM::EngineCor\) was stopped for 5 s \(state T\)$", stopped)
    assert float(seconds) <= 15.0
    assert left == f"left: {NOTHING}"
