"""A file names its parts itself, in few words."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records.parts import KEY, Part, parts_of, summary, to_metadata

NAMES = st.lists(
    st.one_of(st.integers(0, 12).map(lambda number: f"trial-{number:05d}"), st.sampled_from(["x", "a1b", "9", "099"])),
    unique=True,
    max_size=12,
)


def written(parts: list[Part], more: int = 0) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("x", pa.int64())])) as writer:
        writer.write_table(pa.table({"x": pa.array([1] * (sum(part.rows for part in parts) + more), pa.int64())}))
        writer.add_key_value_metadata(to_metadata(parts))
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata


@given(names=NAMES, rows=st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_parts_come_back_in_order(names: list[str], rows: list[int]) -> None:
    parts = [Part(name, count) for name, count in zip(names, rows, strict=False)]
    assert parts_of(written(parts), "other") == parts


def test_a_thousand_trials_take_one_line() -> None:
    metadata = to_metadata(Part(f"trial-{number:05d}", 1) for number in range(99_000, 101_000))
    assert metadata == {KEY: '[["trial-99000",2000,1]]'}


def test_a_file_with_other_rows_than_its_parts_is_one_part() -> None:
    assert parts_of(written([Part("trial-00001", 2)], more=1), "copy") == [Part("copy", 3)]


def test_a_file_that_names_none_is_a_part() -> None:
    plain = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1, 2]}), plain)
    assert parts_of(pq.ParquetFile(pa.BufferReader(plain.getvalue())).metadata, "trial-00007") == [
        Part("trial-00007", 2)
    ]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], ""),
        (
            ["trial-00002", "trial-00001", "confirm-00001", "trial-00005"],
            "confirm-00001, trial-00001 to trial-00002, trial-00005",
        ),
        (["x"], "x"),
    ],
)
def test_names_in_a_few_words(names: list[str], says: str) -> None:
    assert summary([Part(name, 1) for name in names]) == says


@pytest.mark.parametrize("text", ["[[", "5", '[["a"]]', '[["a",1,"x"]]', '[["a",9999999999999,0]]', '[["a",-1,-1]]'])
def test_damaged_names_are_told_and_cost_no_time(text: str) -> None:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("x", pa.int64())])) as writer:
        writer.add_key_value_metadata({KEY: text})
    with pytest.raises(pa.ArrowInvalid, match="the names of its parts are damaged"):
        parts_of(pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata, "x")
