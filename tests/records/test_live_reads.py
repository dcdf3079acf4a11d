"""A run is read by programs that know nothing of it, while a sweep writes to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.records import RunFolder
from orchestrator.records.table_folder import files_of

ROOT = Path(__file__).resolve().parents[2]
WRITES_PER_S = 50


def start(side: str, run: RunFolder, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.records.live_child", side, str(run.path), str(number)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def written(run: RunFolder) -> Iterator[subprocess.Popen[str]]:
    with start("write", run, WRITES_PER_S) as writer:
        try:
            end = time.monotonic() + 60
            while not (run.path / "acknowledged").exists():
                assert writer.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            yield writer
        finally:
            writer.kill()


def read_while_written(run: RunFolder, readers: int, reads: int) -> int:
    """Most rows that a reader saw at once."""
    with written(run) as writer:
        children = [start("read", run, reads) for _ in range(readers)]
        outputs = [child.communicate() for child in children]
        assert writer.poll() is None
    assert [child.returncode for child in children] == [0] * readers, outputs
    return max(int(json.loads(output)["most rows"]) for output, _ in outputs)


def test_readers_see_every_acknowledged_row_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    assert read_while_written(run, readers=2, reads=60) > 20


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_thousand_reads_beside_fifty_writes_a_second(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    assert read_while_written(run, readers=2, reads=5_000) > 1_000
    assert len(files_of(run.table("trials"))) < 20
