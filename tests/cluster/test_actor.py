"""A real engine in a real Ray actor: the cap is in force, and nothing outlives it, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def test_engine_in_an_actor(tmp_path: Path) -> None:
    """Ray keeps state for the life of a process, so that the session has one of its own."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "actor_child.py"), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    refused, *rest = ended.stdout.splitlines()
    assert refused.startswith(
        "refused: resources: an engine with 64 GPUs and 1 CPU does not fit; the cluster has 1 node with 0 GPUs"
    )
    assert rest == [
        "rows 256, bytes 294912",
        "rows 65536, bytes 75497472",
        "killed: engine-dead, lost",
        "left: 0 processes, 0 files, 0 leases",
    ]
