"""Few large files with the same rows, in one step."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import SCHEMAS, RunFolder, compaction, read_arrow, table_folder, write_rows
from orchestrator.records.checking import check
from orchestrator.records.compaction import compact
from orchestrator.records.table_folder import files_of
from tests.records.rows import plain_row

TRIALS = 12


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Files of three trials each."""
    monkeypatch.setattr(table_folder, "FULL_ROWS", 3)
    run = RunFolder.create(tmp_path / "run")
    for trial in range(TRIALS):
        for phase, kind in (("search", "trial"), ("confirm", "confirm")):
            rows = [plain_row("blocks", trial=trial, phase=phase, block=block) for block in range(2)]
            write_rows(run.path, "blocks", f"{kind}-{trial:05d}", rows)
        write_rows(run.path, "trials", f"trial-{trial:05d}", [plain_row("trials", trial=trial)])
    return run


def rows_of(run: RunFolder, table: str) -> list[dict[str, Any]]:
    keys = ("trial", "phase", "block")
    return sorted(read_arrow(run.path, table).to_pylist(), key=lambda row: [row.get(key) for key in keys])


def with_rows(run: RunFolder, table: str) -> list[Path]:
    return [path for path in files_of(run.table(table)) if pq.read_metadata(path).num_rows]


def test_the_rows_are_the_same_in_one_file(run: RunFolder) -> None:
    before = {table: rows_of(run, table) for table in SCHEMAS}
    assert len(with_rows(run, "trials")) == 4
    with run.lock():
        done = compact(run)
    assert {table: rows_of(run, table) for table in SCHEMAS} == before
    assert [(one.table, one.rows, one.files) for one in done] == [
        ("trials", TRIALS, (4, 1)),
        ("blocks", 4 * TRIALS, (12, 1)),
        ("requests", 0, (0, 0)),
    ]
    assert len(pd.read_parquet(run.table("blocks"))) == 4 * TRIALS
    assert all(not table.faults and table.unlisted == 0 for table in check(run))
    assert not list(run.path.glob(".*.compact"))
    with run.lock():
        assert all(one.files[0] == one.files[1] for one in compact(run))


def test_phases_do_not_share_a_row_group(run: RunFolder) -> None:
    with run.lock():
        compact(run)
    (path,) = with_rows(run, "blocks")
    metadata = pq.read_metadata(path)
    place = SCHEMAS["blocks"].get_field_index("phase")
    phases: list[Any] = [metadata.row_group(group).column(place).statistics for group in range(2)]
    assert [(one.min, one.max) for one in phases] == [("confirm", "confirm"), ("search", "search")]


def test_a_repeat_overwrites_after_a_compaction_too(run: RunFolder) -> None:
    with run.lock():
        compact(run)
    (path,) = with_rows(run, "trials")
    assert run.has_part("trials", "trial-00004")
    assert write_rows(run.path, "trials", "trial-00004", [plain_row("trials", trial=4, attempt=1)]) == path
    write_rows(run.path, "trials", f"trial-{TRIALS:05d}", [plain_row("trials", trial=TRIALS)])
    found = pd.read_parquet(run.table("trials"))
    assert sorted(found["trial"]) == list(range(TRIALS + 1))
    assert found.loc[found["trial"] == 4, "attempt"].tolist() == [1]
    assert all(not table.faults for table in check(run))


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_the_exchange_loses_nothing(run: RunFolder, after: bool) -> None:
    before = rows_of(run, "trials")

    def die(first: Path, second: Path) -> None:
        if after:
            exchange(first, second)
        os.kill(os.getpid(), signal.SIGKILL)

    exchange = compaction.exchange
    compaction.exchange = die
    try:
        child = multiprocessing.get_context("fork").Process(target=compact, args=(run,))
        child.start()
        child.join(60)
    finally:
        compaction.exchange = exchange
    assert child.exitcode == -signal.SIGKILL
    assert rows_of(run, "trials") == before
    assert len(with_rows(run, "trials")) == (1 if after else 4)
    with run.lock():
        assert not list(run.path.glob(".*.compact"))
    assert all(not table.faults for table in check(run))
    write_rows(run.path, "trials", "trial-00002", [plain_row("trials", trial=2)])
    assert len(rows_of(run, "trials")) == TRIALS


def test_a_reader_that_listed_the_old_files_reads_again(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """``faulty_listing`` compacts between the listing and the opening."""
    listing = ds.dataset

    def faulty_listing(*arguments: Any, **options: Any) -> Any:
        found = listing(*arguments, **options)
        monkeypatch.setattr(ds, "dataset", listing)
        compact(run)
        return found

    monkeypatch.setattr(ds, "dataset", faulty_listing)
    assert read_arrow(run.path, "trials").num_rows == TRIALS


def test_a_damaged_file_stops_it_before_anything_is_changed(run: RunFolder) -> None:
    path = with_rows(run, "trials")[3]
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChunksmithError, match=rf"{path.name}: is damaged\. To set it aside: chunksmith records check"):
        compact(run)
    assert len(with_rows(run, "trials")) == 4
