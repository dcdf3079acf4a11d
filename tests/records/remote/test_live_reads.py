"""A plain reader of the storage, while a sweep is mirrored there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.records import RunFolder
from orchestrator.records.remote import open_mirror
from tests.s3 import settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", ["s3fs", "pyarrow"])
def test_pandas_reads_the_storage_beside_a_sweep(run: RunFolder, bucket: str, endpoint: str, driver: str) -> None:
    open_mirror(run, bucket).send()
    options = {"endpoint_url": endpoint, "use_listings_cache": False} if driver == "s3fs" else None
    command = [sys.executable, "-m", "tests.records.remote.mirror_child", str(run.path), bucket, "3", "0.5"]
    child = subprocess.Popen(command, cwd=ROOT, env=os.environ | settings(endpoint), stdout=subprocess.DEVNULL)
    try:
        seen, end = 0, time.monotonic() + 20
        while time.monotonic() < end:
            trials = pd.read_parquet(f"{bucket}/demo/trials", columns=["trial"], storage_options=options)["trial"]
            blocks = pd.read_parquet(f"{bucket}/demo/blocks", columns=["trial", "block"], storage_options=options)
            assert not trials.duplicated().any()
            assert not blocks.duplicated().any()
            assert set(trials) <= set(blocks["trial"])
            assert len(trials) >= seen
            seen = len(trials)
        assert seen > 10
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
