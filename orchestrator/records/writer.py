"""Rows of the tables, checked against their schema."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.records import manifest, table_folder
from orchestrator.records.atomic import replace_file
from orchestrator.records.manifest import Entry
from orchestrator.records.schemas import SCHEMA_VERSION, SCHEMAS, Field

EMPTY_PART = "part-empty"
"""Zero-row file that every table has. Its name must not start with ``.`` or ``_``: Parquet readers skip those."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.=+-]*(?:_+[A-Za-z0-9.=+-]+)*")


def write_rows(folder: Path, table: str, name: str, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows in one step; those that were written under the same name before are replaced.

    Args:
        folder: Folder of the run, which holds one folder per table.
        table: Key of ``SCHEMAS``.
        name: Letters, digits and ``. = + - _``, beginning with a letter or digit. A name that the trial fixes makes a
            repeated write harmless.
        rows: One mapping per row. A nullable column may be left out. ``schema_version`` is filled in.

    Returns:
        The file in which the rows are, with others.

    Raises:
        ValueError: Unknown table, or a row that does not fit the schema: the message names row and column.
        ChunksmithError: The file system refused, for instance because it is full. What was there before is untouched.
    """
    return write_parts(folder, table, {name: rows})[name]


def write_parts(folder: Path, table: str, parts: Mapping[str, Sequence[Mapping[str, object]]]) -> dict[str, Path]:
    """As ``write_rows``, for several names: those that were not there before are all written, or none is.

    Args:
        parts: Rows by the name.

    Returns:
        The file of each.
    """
    for name in parts:
        _check_name(name)
        if name == EMPTY_PART:
            raise ValueError(f"the name {EMPTY_PART!r} belongs to the empty file that every table has")
    # Checking a column costs more than its rows do.
    data = _to_arrow(table, [row for rows in parts.values() for row in rows])
    starts = itertools.accumulate((len(rows) for rows in parts.values()), initial=0)
    sliced = {name: data.slice(start, len(parts[name])) for name, start in zip(parts, starts, strict=False)}
    return table_folder.put(folder / table, sliced)


def write_empty_table(folder: Path, table: str) -> None:
    """Make a table's folder with a zero-row file, so that readers work before the first row is written."""
    target = folder / table / f"{EMPTY_PART}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    content = table_folder.encode(SCHEMAS[table].empty_table(), [])
    with manifest.locked(target.parent) as log:
        entry = Entry.of(target.name, content, [])
        replace_file(target, content, before=lambda: log.add(entry))


def _check_name(name: str) -> None:
    if len(name) > 200 or not _NAME.fullmatch(name):
        raise ValueError(
            f"file name {name!r} must be at most 200 letters, digits or . = + - _ and begin with a letter or digit"
        )


def _to_arrow(table: str, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    if table not in SCHEMAS:
        raise ValueError(f"unknown table {table!r}; known are {', '.join(SCHEMAS)}")
    schema = SCHEMAS[table]
    known = set(schema.names)
    for index, row in enumerate(rows):
        if unknown := row.keys() - known:
            raise ValueError(f"{table} row {index}: unknown column {', '.join(map(repr, sorted(unknown)))}")
        version = row.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise ValueError(f"{table} row {index}: schema_version must be {SCHEMA_VERSION}, got {version!r}")
    columns = [_column(table, field, rows) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(table: str, field: Field, rows: Sequence[Mapping[str, object]]) -> pa.Array[Any]:
    if field.name == "schema_version":
        values: list[Any] = [SCHEMA_VERSION] * len(rows)
    else:
        values = [row.get(field.name) for row in rows]
    # Identity, not equality: a value may be an array, which compares member by member.
    absent = next((index for index, value in enumerate(values) if value is None), None)
    if not field.nullable and absent is not None:
        raise ValueError(f"{table} row {absent}: column {field.name!r} needs a value")
    if allowed := _allowed(field):
        for index, value in enumerate(values):
            if value is not None and value not in allowed:
                raise ValueError(f"{table} row {index}: {field.name!r} must be {'|'.join(allowed)}, got {value!r}")
    if pa.types.is_timestamp(field.type):
        for index, value in enumerate(values):
            # Arrow would take it for UTC, whatever clock it came from.
            if isinstance(value, datetime) and value.tzinfo is None:
                raise ValueError(f"{table} row {index}: {field.name!r} needs a time zone, got {value!r}")
    try:
        column: pa.Array[Any] = pa.array(_whole_numbers(values, field.type), field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(f"{table}: column {field.name!r} is {field.type}: {error}") from error
    if isinstance(column, pa.ListArray) and column.values.null_count:
        raise ValueError(f"{table}: column {field.name!r} holds a list with a null member")
    return column


def _whole_numbers(values: list[Any], kind: pa.DataType) -> list[Any]:
    """The values, checked to be integers where the column is: Arrow would cut off a fraction without a word."""
    if pa.types.is_integer(kind):
        return [None if value is None else operator.index(value) for value in values]
    if isinstance(kind, pa.ListType) and pa.types.is_integer(kind.value_type):
        return [None if value is None else _whole_numbers(list(value), kind.value_type) for value in values]
    return values


def _allowed(field: Field) -> Sequence[str]:
    values = (field.metadata or {}).get(b"values", b"").decode()
    return values.split("|") if values else ()
