"""Runs to mirror, and where to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.records import RunFolder
from tests.records.remote.runs import NUMBERS, record
from tests.s3 import make_bucket, s3_server, use


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket, to which every driver in this process finds its way."""
    use(endpoint, monkeypatch)
    return make_bucket(endpoint, f"results-{next(NUMBERS)}")


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A folder in a storage that costs no time."""
    return f"file://{tmp_path}/there"


@pytest.fixture(params=["s3", "file", "memory"])
def any_target(request: pytest.FixtureRequest, target: str) -> str:
    """A folder in a storage of each kind."""
    if request.param == "s3":
        address: str = request.getfixturevalue("bucket")
        return f"{address}/runs"
    return target if request.param == "file" else f"memory://bucket-{next(NUMBERS)}/runs"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of which three trials are recorded."""
    run = RunFolder.create(tmp_path / "demo")
    run.spec.write_text("study: demo\n")
    run.provenance.write_text("{}\n")
    record(run, 0, 1, 2)
    return run
