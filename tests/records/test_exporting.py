"""Tables as single files for other programs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import fsspec
import pandas as pd
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import SCHEMAS, RunFolder, write_rows
from orchestrator.records.exporting import export
from tests.records.rows import plain_row

DATA = Path(__file__).parent / "data"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "run")
    for trial in range(3):
        rows = [plain_row("requests", trial=trial, output_token_ids=[5, trial], error='a "b", c')]
        write_rows(run.path, "requests", f"trial-{trial:05d}", rows)
    write_rows(run.path, "trials", "x", [plain_row("trials", serve_args=["m", "--a", "b c"], ratio=0.5)])
    return run


def test_csv_can_be_read_by_anyone(run: RunFolder, tmp_path: Path) -> None:
    paths = export(run, tmp_path / "out", form="csv")
    assert paths == [str(tmp_path / "out" / name) for name in ("trials.csv", "blocks.csv", "requests.csv")]
    requests = pd.read_csv(tmp_path / "out" / "requests.csv")
    assert list(requests.columns) == SCHEMAS["requests"].names
    assert [json.loads(text) for text in requests["output_token_ids"]] == [[5, 0], [5, 1], [5, 2]]
    assert set(requests["error"]) == {'a "b", c'}
    trials = pd.read_csv(tmp_path / "out" / "trials.csv")
    assert trials["started_at"][0] == "2026-01-02 03:04:05.678901Z"
    assert json.loads(trials["serve_args"][0]) == ["m", "--a", "b c"]
    assert len(pd.read_csv(tmp_path / "out" / "blocks.csv")) == 0


def test_parquet_has_the_columns_with_their_units(run: RunFolder, tmp_path: Path) -> None:
    (path,) = export(run, tmp_path, form="parquet", tables=["requests"])
    table = pq.read_table(path)
    assert table.num_rows == 3
    assert (table.schema.field("send_s").metadata or {})[b"unit"] == b"s"


def test_an_address_of_fsspec_will_do(run: RunFolder) -> None:
    (address,) = export(run, "memory://bucket/folder/", form="parquet", tables=["requests"])
    assert address == "memory://bucket/folder/requests.parquet"
    assert len(pd.read_parquet(address)) == 3
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_an_address_of_pyarrow_will_do(run: RunFolder, tmp_path: Path) -> None:
    export(run, f"file://{tmp_path}/new/out", form="csv", tables=["trials"])
    assert [path.name for path in (tmp_path / "new" / "out").iterdir()] == ["trials.csv"]


def test_rows_of_an_old_version_come_in_the_present_schema(tmp_path: Path) -> None:
    export(RunFolder(DATA / "version-1"), tmp_path, form="parquet")
    for table, schema in SCHEMAS.items():
        assert pq.read_table(tmp_path / f"{table}.parquet").schema.names == schema.names


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown format 'pickle'"):
        export(run, tmp_path / "out", form="pickle")
    with pytest.raises(UserError, match="unknown table 'trial'; did you mean 'trials'"):
        export(run, tmp_path / "out", form="csv", tables=["trial"])
    with pytest.raises(UserError, match="is a file"):
        export(run, run.table("trials") / "part-empty.parquet", form="csv")
    with pytest.raises(UserError, match=r"^nope://u@x/y: unknown kind of address: Protocol not known: nope"):
        export(run, "nope://u:hushhush@x/y", form="csv")
    (run.table("trials") / "bad.parquet").write_bytes(b"no")
    with pytest.raises(ChunksmithError, match=r"bad\.parquet: is damaged"):
        export(run, tmp_path / "out", form="csv", tables=["trials"])
    assert list((tmp_path / "out").iterdir()) == []


class FaultyFolder(tempfile.TemporaryDirectory[str]):
    """A table that is first written here goes to a full device."""

    def __enter__(self) -> str:
        folder = super().__enter__()
        for name in ("trials.csv", "trials.parquet"):
            (Path(folder) / name).symlink_to("/dev/full")
        return folder


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_file_that_a_full_disk_does_not_take_is_named(
    form: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryDirectory", FaultyFolder)
    with pytest.raises(ChunksmithError, match=rf"/out/trials\.{form}: cannot write: .*No space left on device"):
        export(run, tmp_path / "out", form=form, tables=["trials"])
    assert list((tmp_path / "out").iterdir()) == []
