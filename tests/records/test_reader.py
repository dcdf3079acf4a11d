"""Reading tables into pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import SCHEMAS, RunFolder, parse_object, read_arrow, read_table, read_trials, write_rows
from tests.records.rows import plain_row


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_integers_stay_integers_beside_nulls(run: RunFolder) -> None:
    exact = 2**53 + 1  # no float holds this
    rows = [plain_row("blocks", block=0, workspace_bytes=exact), plain_row("blocks", block=1)]
    write_rows(run.path, "blocks", "x", rows)
    found = read_table(run.path, "blocks")
    assert found["workspace_bytes"][0] == exact
    assert found["workspace_bytes"][1] is pd.NA
    assert str(found["started_at"].dtype) == "datetime64[us, UTC]"


def test_only_the_wanted_rows_are_read(run: RunFolder) -> None:
    write_rows(run.path, "blocks", "x", [plain_row("blocks", block=index) for index in range(5)])
    assert list(read_table(run.path, "blocks", where=pc.field("block") > 2)["block"]) == [3, 4]


def test_trials_are_in_order_with_a_column_per_knob(run: RunFolder) -> None:
    for trial, point in ((1, '{"rows": 256, "dtype": "fp8"}'), (0, '{"rows": 512, "dtype": "auto"}')):
        write_rows(run.path, "trials", f"t{trial}", [plain_row("trials", trial=trial, point=point)])
    found = read_trials(run.path)
    assert list(found["trial"]) == [0, 1]
    assert list(found["knob.rows"]) == [512, 256]
    assert list(found["knob.dtype"]) == ["auto", "fp8"]
    assert "point" in found


def test_no_trial_gives_no_row_and_all_columns(run: RunFolder) -> None:
    found = read_trials(run.path)
    assert (len(found), list(found.columns)) == (0, SCHEMAS["trials"].names)


def test_a_point_that_is_no_object_is_named(run: RunFolder) -> None:
    write_rows(run.path, "trials", "x", [plain_row("trials", point="[1]")])
    with pytest.raises(ChunksmithError, match="trials: point: a JSON object was expected"):
        read_trials(run.path)
    with pytest.raises(ChunksmithError, match="here: not JSON"):
        parse_object("{", where="here")


def test_another_schema_version_is_refused(run: RunFolder) -> None:
    path = write_rows(run.path, "trials", "x", [plain_row("trials")])
    table = pq.read_table(path)
    old = table.set_column(0, table.schema.field(0), pa.array([0], pa.int32()))
    pq.write_table(old, path)
    with pytest.raises(ChunksmithError, match="rows of schema version 0; this Chunksmith reads 1 to 4"):
        read_arrow(run.path, "trials")


def test_rows_of_the_version_before_are_read_beside_new_ones(run: RunFolder) -> None:
    path = write_rows(run.path, "trials", "new", [plain_row("trials", study="new", starting_s=1.5)])
    old = pq.read_table(path).drop_columns(["objectives", "starting_s"])
    old = old.set_column(0, old.schema.field(0), pa.array([3], pa.int32()))
    old = old.set_column(1, old.schema.field(1), pa.array(["old"]))
    pq.write_table(old, run.table("trials") / "old.parquet")
    found = {row["study"]: row for row in read_arrow(run.path, "trials").to_pylist()}
    assert (found["new"]["starting_s"], found["old"]["starting_s"]) == (1.5, None)
    assert found["old"]["objectives"] is None
    assert set(read_trials(run.path)["study"]) == {"new", "old"}


def test_what_is_not_there_is_named(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ChunksmithError, match="the table 'trials' is missing"):
        read_arrow(tmp_path, "trials")
    with pytest.raises(ValueError, match="unknown table 'block'"):
        read_arrow(run.path, "block")


@pytest.mark.parametrize("name", [".hidden", "_private", "study=7"])
def test_any_name_of_the_run_works(tmp_path: Path, name: str) -> None:
    run = RunFolder.create(tmp_path / name / "run")
    write_rows(run.path, "trials", "x", [plain_row("trials", study=name)])
    assert list(read_table(run.path, "trials")["study"]) == [name]
    assert list(pd.read_parquet(run.table("trials"))["study"]) == [name]
