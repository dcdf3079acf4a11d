"""kill -9 at any moment leaves every file readable and whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.records import RunFolder
from tests.records.writing_child import NAMES, ROWS, STEPS

ROOT = Path(__file__).resolve().parents[2]


def start(run: RunFolder, *step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.records.writing_child", str(run.path), *step]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def stamps(run: RunFolder) -> dict[int, int]:
    """Rows per stamp, by pandas alone: the way a notebook reads."""
    found = pd.read_parquet(run.table("requests"))
    return dict(Counter(int(stamp) for stamp in found["trial"]))


@pytest.mark.parametrize("step", STEPS)
def test_killed_inside_a_write(tmp_path: Path, step: str) -> None:
    run = RunFolder.create(tmp_path / "run")
    with start(run, step) as child:
        output, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert output.split() == ["1"]
    assert stamps(run) == {2 if step == "renamed" else 1: ROWS}
    left = [path.name for path in run.table("requests").glob(".*")]
    assert bool(left) == (step != "renamed")
    with run.lock():
        assert list(run.table("requests").glob(".*")) == []
    assert stamps(run) == {2 if step == "renamed" else 1: ROWS}


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_some_moment_while_another_process_reads(tmp_path: Path, seed: int) -> None:
    run = RunFolder.create(tmp_path / "run")
    with start(run) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        end = time.monotonic() + random.Random(seed).uniform(0.05, 0.4)
        reads = 0
        while time.monotonic() < end or reads < 2:
            counts = stamps(run)
            assert set(counts.values()) == {ROWS}
            reads += 1
        child.kill()
        acknowledged = 1 + len(child.stdout.read().split())
    counts = stamps(run)
    assert set(counts.values()) == {ROWS}
    # Every write that was acknowledged is there, unless a later one took its name.
    newest = max(counts)
    assert newest in (acknowledged, acknowledged + 1)
    assert set(counts) == set(range(max(1, newest - NAMES + 1), newest + 1))
