"""Whole columns are those that a dataset gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, codes_of, read_arrow, read_columns, rows_with, write_rows
from tests.records.rows import plain_row

COLUMNS = ("trial", "fidelity", "outcome", "failure", "ratio", "point", "started_at")


def objectives(*ratios: float) -> list[dict[str, Any]]:
    ends = {"metric": "median_ttft_ms", "direction": "minimize", "ratio_low": 0.0, "ratio_high": 9.0}
    return [{**ends, "ratio": ratio} for ratio in ratios]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "run")
    rows = [
        plain_row("trials", trial=0, fidelity="full", outcome="complete", ratio=0.5, objectives=objectives(0.5, 2.0)),
        plain_row("trials", trial=1, fidelity="short", outcome="failed", failure="cuda-oom", point='{"rows": 2}'),
        plain_row("trials", trial=2, outcome="complete", ratio=0.7, objectives=objectives(0.7, 3.0)),
    ]
    write_rows(run.path, "trials", "new", rows)
    # A file of a version that had neither fidelity nor objectives.
    old = read_arrow(run.path, "trials").slice(0, 1).drop_columns(["objectives", "fidelity"])
    old = old.set_column(0, old.schema.field(0), pa.array([3], pa.int32()))
    pq.write_table(old, run.table("trials") / "old.parquet")
    return run


def test_they_are_those_of_a_dataset(run: RunFolder) -> None:
    found, expected = read_columns(run.path, "trials", COLUMNS), read_arrow(run.path, "trials", columns=COLUMNS)
    assert found.column_names == list(COLUMNS)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_one_field_of_structs_comes_without_the_others(run: RunFolder) -> None:
    found = read_columns(run.path, "trials", ["trial", "objectives.ratio"]).to_pylist()
    ratios = [[one["ratio"] for one in row["objectives.ratio"] or ()] for row in found]
    assert sorted(ratios) == [[], [], [0.5, 2.0], [0.7, 3.0]]


def test_what_rows_have_is_told_by_their_codes(run: RunFolder) -> None:
    found = read_columns(run.path, "trials", COLUMNS)
    fidelity = found["fidelity"].to_pylist()
    assert rows_with(found["fidelity"], "full", None).tolist() == [one in ("full", None) for one in fidelity]
    assert rows_with(found["fidelity"], "lab").tolist() == [False] * 4
    codes, texts = codes_of(found["failure"])
    assert [None if code < 0 else texts[code].as_py() for code in codes.tolist()] == found["failure"].to_pylist()


def test_no_rows(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    found = read_columns(run.path, "trials", [*COLUMNS, "objectives.ratio"])
    assert found.num_rows == 0
    assert not rows_with(found["outcome"], "complete", None).size


def test_what_is_wrong_is_said_in_one_line(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ChunksmithError, match="the table 'trials' is missing"):
        read_columns(tmp_path, "trials", COLUMNS)
    file = run.table("trials") / "old.parquet"
    old = pq.read_table(file)
    pq.write_table(old.set_column(0, old.schema.field(0), pa.array([99], pa.int32())), file)
    with pytest.raises(ChunksmithError, match="rows of schema version"):
        read_columns(run.path, "trials", COLUMNS)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ChunksmithError, match=r"old\.parquet: is damaged"):
        read_columns(run.path, "trials", COLUMNS)
