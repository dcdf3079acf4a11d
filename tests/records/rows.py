"""Rows that fit a schema, made from the schema itself, and a disk that is full."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from orchestrator.records import SCHEMAS


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(kind):
        return st.text()
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_int32(kind):
        return st.integers(-(2**31), 2**31 - 1)
    if pa.types.is_int64(kind):
        return st.integers(-(2**63), 2**63 - 1)
    if pa.types.is_float32(kind):
        return st.floats(allow_nan=False, width=32)
    if pa.types.is_float64(kind):
        return st.floats(allow_nan=False)
    if pa.types.is_timestamp(kind):
        first, last = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1970, 2200))
        return st.datetimes(first, last, timezones=st.just(UTC))
    if isinstance(kind, pa.ListType):
        return st.lists(_values(kind.value_type), max_size=4)
    if isinstance(kind, pa.StructType):
        return st.fixed_dictionaries({field.name: _column(field) for field in kind})
    raise AssertionError(f"no strategy for {kind}")


def _column(field: pa.Field[Any]) -> st.SearchStrategy[Any]:
    allowed = (field.metadata or {}).get(b"values")
    values = st.sampled_from(allowed.decode().split("|")) if allowed else _values(field.type)
    return st.none() | values if field.nullable else values


def rows(table: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any row of a table, with every column but ``schema_version``."""
    fields = [field for field in SCHEMAS[table] if field.name != "schema_version"]
    return st.fixed_dictionaries({field.name: _column(field) for field in fields})


def plain_row(table: str, **changes: Any) -> dict[str, Any]:
    """One unremarkable row, with the given columns changed and every nullable one null."""
    row: dict[str, Any] = {}
    for field in SCHEMAS[table]:
        if field.name == "schema_version":
            continue
        allowed = (field.metadata or {}).get(b"values")
        if field.nullable:
            row[field.name] = None
        elif allowed:
            row[field.name] = allowed.decode().split("|")[0]
        elif isinstance(field.type, pa.ListType):
            row[field.name] = []
        elif pa.types.is_timestamp(field.type):
            row[field.name] = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        elif pa.types.is_boolean(field.type):
            row[field.name] = False
        elif pa.types.is_string(field.type):
            row[field.name] = "{}"
        else:
            row[field.name] = 0
    unknown = changes.keys() - row.keys()
    assert not unknown, unknown
    return row | changes


def same(left: Any, right: Any) -> bool:
    """Equality that tells 0.0 from -0.0."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond ``size`` bytes: a disk that is full, without mounting one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
