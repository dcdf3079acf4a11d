"""Whatever a rank of vLLM over Ray leaves is removed on its own node, though its owner dies and it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_nothing_of_a_killed_rank_is_left() -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "rank_guard_child.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told == {"guards": 2, "scratch_is_there": True, "leases": 2, "left": []}
