"""Rows come back as they were written; a row that does not fit, or a write that fails, changes nothing."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import ChunksmithError
from orchestrator.records import (
    SCHEMA_VERSION,
    SCHEMAS,
    RunFolder,
    manifest,
    parts,
    read_arrow,
    write_rows,
    write_text_atomic,
)
from tests.records.rows import no_file_larger_than, plain_row, rows, same


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != manifest.NAME)


@pytest.mark.parametrize("table", SCHEMAS)
@settings(max_examples=40)
@given(data=st.data())
def test_rows_come_back_as_they_were_written(table: str, data: st.DataObject) -> None:
    written = data.draw(st.lists(rows(table), max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")
        path = write_rows(run.path, table, "part", written)
        assert path == run.table(table) / "merged-00000.parquet"
        metadata = pq.read_schema(path).metadata or {}
        plain = pq.read_schema(path).with_metadata(
            {key: metadata[key] for key in metadata if key != parts.KEY.encode()}
        )
        assert plain.equals(SCHEMAS[table], check_metadata=True)
        found = read_arrow(run.path, table).to_pylist()
    assert [row.pop("schema_version") for row in found] == [SCHEMA_VERSION] * len(written)
    for before, after in zip(written, found, strict=True):
        assert before.keys() == after.keys()
        assert {name: (before[name], after[name]) for name in before if not same(before[name], after[name])} == {}


def test_the_same_name_overwrites_and_another_adds(run: RunFolder) -> None:
    write_rows(run.path, "trials", "a", [plain_row("trials", trial=1), plain_row("trials", trial=2)])
    write_rows(run.path, "trials", "b", [plain_row("trials", trial=3)])
    write_rows(run.path, "trials", "a", [plain_row("trials", trial=4)])
    assert sorted(pd.read_parquet(run.table("trials"))["trial"]) == [3, 4]


@pytest.mark.parametrize("table", SCHEMAS)
def test_pandas_reads_a_table_before_its_first_row_and_after(run: RunFolder, table: str) -> None:
    empty = pd.read_parquet(run.table(table))
    assert (len(empty), list(empty.columns)) == (0, SCHEMAS[table].names)
    write_rows(run.path, table, "x", [plain_row(table)])
    full = pd.read_parquet(run.table(table))
    assert (len(full), list(full.columns)) == (1, SCHEMAS[table].names)


def test_nullable_columns_may_be_left_out(run: RunFolder) -> None:
    row = {name: value for name, value in plain_row("trials").items() if value is not None}
    write_rows(run.path, "trials", "x", [row])
    assert read_arrow(run.path, "trials").to_pylist()[0]["failure"] is None


def test_numpy_values_are_taken(run: RunFolder) -> None:
    tokens = np.array([5, 6], dtype=np.int64)
    row = plain_row("requests", output_token_ids=tokens, trial=np.int64(3), send_s=np.float32(0.5))
    write_rows(run.path, "requests", "x", [row])
    found = read_arrow(run.path, "requests").to_pylist()[0]
    assert (found["output_token_ids"], found["trial"], found["send_s"]) == ([5, 6], 3, 0.5)


@pytest.mark.parametrize(
    ("table", "change", "says"),
    [
        ("trials", {"ration": 1.0}, "trials row 1: unknown column 'ration'"),
        ("trials", {"metric": None}, "trials row 1: column 'metric' needs a value"),
        (
            "trials",
            {"outcome": "done"},
            r"trials row 1: 'outcome' must be complete\|infeasible\|failed\|lost, got 'done'",
        ),
        ("trials", {"pairs": 1.5}, "column 'pairs' is int32"),
        ("requests", {"output_token_ids": [1.5]}, "column 'output_token_ids' is list"),
        ("requests", {"output_token_ids": np.array([1.0])}, "column 'output_token_ids' is list"),
        ("trials", {"pairs": 2**31}, "column 'pairs' is int32"),
        ("trials", {"study": 5}, "column 'study' is string"),
        ("trials", {"schema_version": 1}, "schema_version must be 4, got 1"),
        ("trials", {"started_at": datetime(2026, 1, 1)}, "'started_at' needs a time zone"),  # noqa: DTZ001
        ("trials", {"serve_args": ["a", None]}, "column 'serve_args' holds a list with a null member"),
        ("blocks", {"dropped": "no"}, "column 'dropped' is bool"),
        ("blocks", {"phase": "warm-up"}, "'phase' must be"),
        ("requests", {"top2_gaps": "x"}, "column 'top2_gaps'"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(run: RunFolder, table: str, change: dict[str, Any], says: str) -> None:
    write_rows(run.path, table, "x", [plain_row(table, trial=7)])
    before = listing(run.table(table))
    with pytest.raises(ValueError, match=says):
        write_rows(run.path, table, "x", [plain_row(table), plain_row(table) | change])
    assert listing(run.table(table)) == before
    assert read_arrow(run.path, table)["trial"].to_pylist() == [7]


def test_a_column_that_is_missing_is_named(run: RunFolder) -> None:
    row = plain_row("blocks")
    del row["pair"]
    with pytest.raises(ValueError, match="blocks row 0: column 'pair' needs a value"):
        write_rows(run.path, "blocks", "x", [row])


@pytest.mark.parametrize("name", ["", ".x", "_x", "a/b", "../x", "x\n", "part-empty", "é", "a" * 201])
def test_a_name_that_readers_would_skip_or_misplace_is_refused(run: RunFolder, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        write_rows(run.path, "trials", name, [plain_row("trials")])
    assert listing(run.table("trials")) == ["part-empty.parquet"]


@pytest.mark.parametrize("name", ["x", "trial-00001", "trial=3.attempt_1", "a_b-c", "0"])
def test_ordinary_names_are_taken(run: RunFolder, name: str) -> None:
    write_rows(run.path, "trials", name, [plain_row("trials")])
    assert len(pd.read_parquet(run.table("trials"))) == 1


def test_an_unknown_table_is_refused(run: RunFolder) -> None:
    with pytest.raises(ValueError, match="unknown table 'trails'; known are trials, blocks, requests"):
        write_rows(run.path, "trails", "x", [])


def test_a_full_disk_loses_nothing_and_leaves_nothing(run: RunFolder) -> None:
    path = write_rows(run.path, "requests", "x", [plain_row("requests", request=1)])
    before = path.read_bytes()
    many = [plain_row("requests", request=index, error=os.urandom(20).hex()) for index in range(2000)]
    with no_file_larger_than(20_000), pytest.raises(ChunksmithError, match=r"cannot write: File too large"):
        write_rows(run.path, "requests", "x", many)
    assert path.read_bytes() == before
    assert listing(run.table("requests")) == ["merged-00000.parquet", "part-empty.parquet"]


def test_a_table_folder_that_is_gone_is_one_clear_error(run: RunFolder) -> None:
    for path in run.table("trials").iterdir():
        path.unlink()
    run.table("trials").rmdir()
    with pytest.raises(ChunksmithError, match="cannot write: No such file or directory"):
        write_rows(run.path, "trials", "x", [plain_row("trials")])


def test_text_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    write_text_atomic(path, "größe: 1\n")
    with no_file_larger_than(1000), pytest.raises(ChunksmithError, match=r"spec\.yaml: cannot write"):
        write_text_atomic(path, "x" * 5000)
    assert path.read_text(encoding="utf-8") == "größe: 1\n"
    assert listing(tmp_path) == ["spec.yaml"]


def test_files_can_be_read_by_others_as_the_umask_says(run: RunFolder) -> None:
    before = os.umask(0o027)
    try:
        path = write_rows(run.path, "trials", "x", [plain_row("trials")])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
