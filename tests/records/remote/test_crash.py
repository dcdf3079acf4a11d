"""A process that is killed while it uploads leaves nothing half, and the next one brings the storage up to date."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.records import RunFolder
from orchestrator.records.checking import check
from orchestrator.records.remote import fetch, open_mirror
from tests.records.remote.runs import contents, contents_there
from tests.s3 import FaultyWire, settings

ROOT = Path(__file__).resolve().parents[3]


def recorded_until(run: RunFolder, target: str, endpoint: str, is_time: Callable[[int], bool]) -> int:
    """Let a child record and mirror until it is time, then kill it; returns how many trials are recorded.

    ``is_time`` is asked after each trial, with how many the child has recorded.
    """
    first = _recorded(run)
    command = [sys.executable, "-m", "tests.records.remote.mirror_child", str(run.path), target, str(max(first - 2, 0))]
    environment = os.environ | settings(endpoint)
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        count = 0
        for line in child.stdout:
            count += line.strip().isdecimal()
            if is_time(count):
                break
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()
    return _recorded(run)


def _recorded(run: RunFolder) -> int:
    return len(pd.read_parquet(run.table("trials"), columns=["trial"]))


def require_whole(run: RunFolder, address: str, into: Path) -> int:
    """What lies there has no fault and no row twice, and every trial has its blocks; returns the trials."""
    copy = fetch(address, into)
    # The first pass may not have come to every table.
    assert [fault for table in check(copy) for fault in table.faults if fault.what != "is missing"] == []
    if not copy.table("trials").is_dir():
        return 0
    trials = pd.read_parquet(copy.table("trials"), columns=["trial"])["trial"]
    blocks = pd.read_parquet(copy.table("blocks"), columns=["trial", "block"])
    assert not trials.duplicated().any()
    assert not blocks.duplicated().any()
    assert set(trials) <= set(blocks["trial"])
    return len(trials)


@pytest.fixture
def wire(endpoint: str) -> FaultyWire:
    return FaultyWire(endpoint)


def test_a_kill_in_the_middle_of_an_upload(run: RunFolder, bucket: str, wire: FaultyWire, tmp_path: Path) -> None:
    address = f"{bucket}/demo"
    open_mirror(run, bucket).send()
    # Dead in the middle of an object, of which a part has arrived.
    wire.die_after(30_000)
    recorded_until(run, bucket, wire.endpoint, lambda _: wire.is_dead.is_set())
    wire.cut()
    assert 3 <= require_whole(run, address, tmp_path / "copy-0") <= _recorded(run)
    assert contents_there(address) != contents(run)
    open_mirror(run, bucket).send()
    assert contents_there(address) == contents(run)
    assert require_whole(run, address, tmp_path / "copy-1") == _recorded(run)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_kills_at_any_moment(run: RunFolder, bucket: str, endpoint: str, tmp_path: Path) -> None:
    address = f"{bucket}/demo"
    for turn in range(100):
        recorded_until(run, bucket, endpoint, lambda done, turn=turn: done > turn % 17)  # type: ignore[misc]
        require_whole(run, address, tmp_path / f"copy-{turn}")
    open_mirror(run, bucket).send()
    assert contents_there(address) == contents(run)
