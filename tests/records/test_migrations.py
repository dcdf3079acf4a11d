"""Runs that earlier versions wrote, cut down to two confirmed trials each, read by this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator.analysis import best
from orchestrator.records import SCHEMAS, read_arrow, read_table
from orchestrator.records.migrations import _SINCE, OLDEST
from orchestrator.records.schemas import SCHEMA_VERSION

DATA = Path(__file__).parent / "data"
VERSIONS = (1, 2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table", SCHEMAS)
def test_old_rows_fit_the_present_schema(version: int, table: str) -> None:
    run = DATA / f"version-{version}"
    found = read_arrow(run, table)
    written = pq.read_table(run / table / "part.parquet")
    assert set(written["schema_version"].to_pylist()) == {version}
    assert found.schema.names == SCHEMAS[table].names
    for field in SCHEMAS[table]:
        assert field.nullable or found[field.name].null_count == 0, field.name
        if field.name in written.schema.names:
            assert found[field.name].to_pylist() == written[field.name].to_pylist()


def test_what_a_version_added_holds_what_was_true_before() -> None:
    blocks = read_table(DATA / "version-1", "blocks")
    assert set(blocks["outcome"]) == {"complete"}
    assert set(blocks["area_plans"]) == {0}
    assert set(read_table(DATA / "version-1", "trials")["pairing"]) == {"one engine"}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_run_still_has_its_answer(version: int) -> None:
    answer = best(DATA / f"version-{version}")
    assert answer.ratio is not None
    assert 0.5 < answer.ratio < 1.0
    assert answer.pairs == 5


def test_old_and_new_rows_stand_beside_each_other(tmp_path: Path) -> None:
    for version in VERSIONS:
        shutil.copytree(DATA / f"version-{version}" / "trials", tmp_path / "trials" / f"{version}")
    found = read_table(tmp_path, "trials", columns=["schema_version", "pairing"])
    assert sorted(set(found["schema_version"])) == list(VERSIONS)
    assert found["pairing"].notna().all()


def test_columns_can_be_chosen() -> None:
    found = read_arrow(DATA / "version-1", "blocks", where=pc.field("role") == "baseline", columns=["outcome"])
    assert found.schema.names == ["outcome"]
    assert found["outcome"].null_count == 0


def test_every_version_says_what_it_added() -> None:
    assert sorted(_SINCE) == list(range(OLDEST + 1, SCHEMA_VERSION + 1))
    for added in _SINCE.values():
        assert added.keys() == SCHEMAS.keys()
        for table, defaults in added.items():
            assert not any(SCHEMAS[table].field(name).nullable for name in defaults)
