"""The slots of a sweep follow the nodes of a cluster, and no trial is lost by that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


def test_slots_come_and_go_with_the_nodes(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "slots_child.py"), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
        # A shell has its background jobs ignore it, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["outcomes"] == ["complete"]
    assert told["trials"] == list(range(60))
    lines = told["output"]
    assert lines.index("2 trials at a time") < lines.index("3 trials at a time") < lines.index("lost: ")
    # The node's trial was begun again, and its slot left as soon as the cluster was known to be smaller.
    assert told["attempts"] >= 1
    assert "leaves: the cluster has room for 2" in lines
    stopped = told["interrupted"]
    assert stopped["stopped"]
    assert stopped["engines"] == 2
    assert stopped["left"] == []
    assert 4 <= stopped["trials"] < 60
    assert told["no_room"] == "no-room, lost"
    assert told["gone"] == ["no-room, lost", "resources, not lost"]
