"""Runs with records, and what a storage has of them."""

from __future__ import annotations

import itertools
from functools import cache

from orchestrator.records import RunFolder, write_rows
from orchestrator.records.remote import Place
from tests.records.rows import plain_row

NUMBERS = itertools.count()
"""For buckets: each test has its own."""


def record(run: RunFolder, *trials: int, attempt: int = 0) -> None:
    """Record trials with two blocks of one request each, as a sweep does: their rows last."""
    for trial in trials:
        name = f"trial-{trial:05d}"
        requests = [plain_row("requests", trial=trial, block=block) for block in (0, 1)]
        write_rows(run.path, "requests", name, requests)
        write_rows(run.path, "blocks", name, [plain_row("blocks", trial=trial, block=block) for block in (0, 1)])
        write_rows(run.path, "trials", name, [plain_row("trials", trial=trial, attempt=attempt)])


def contents(run: RunFolder) -> dict[str, bytes]:
    """What a mirror must have of a run, manifests aside."""
    files = {"spec.yaml": run.spec, "provenance.json": run.provenance}
    files |= {str(path.relative_to(run.path)): path for path in run.path.glob("*/*.parquet")}
    files |= {str(path.relative_to(run.path)): path for path in run.path.glob("soak/*.json")}
    return {name: path.read_bytes() for name, path in files.items() if path.exists()}


def contents_there(address: str) -> dict[str, bytes]:
    """What a storage has, manifests and the mark aside."""
    place = _place(address)
    names = {name for name in place.names() if not name.rpartition("/")[2].startswith("_")}
    return {name: place.read(name) or b"" for name in names}


@cache
def _place(address: str) -> Place:
    # A client of S3 takes a while to make.
    return Place(address)
