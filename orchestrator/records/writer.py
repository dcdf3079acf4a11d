"""Files that are either whole or not there: a kill or a full disk never leaves half of one.

A file is written under a temporary name whose leading dot hides it from Parquet readers, flushed to the disk, and then
renamed, which POSIX does in one step (rename(2)).
"""

from __future__ import annotations

import operator
import os
import re
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import ChunksmithError
from orchestrator.records.schemas import SCHEMA_VERSION, SCHEMAS, Field

EMPTY_PART = "part-empty"
"""Zero-row file that every table has. Its name must not start with ``.`` or ``_``: Parquet readers skip those."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.=+-]*(?:_+[A-Za-z0-9.=+-]+)*")
_TEMPORARY_SUFFIX = ".tmp"


def write_rows(folder: Path, table: str, name: str, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows as ``<folder>/<table>/<name>.parquet`` in one step; a file of that name is replaced.

    Args:
        folder: Folder of the run, which holds one folder per table.
        table: Key of ``SCHEMAS``.
        name: File name without suffix: letters, digits and ``. = + - _``, beginning with a letter or digit. A name
            that the trial fixes makes a repeated write harmless.
        rows: One mapping per row. A nullable column may be left out. ``schema_version`` is filled in.

    Returns:
        The file.

    Raises:
        ValueError: Unknown table, or a row that does not fit the schema: the message names row and column.
        ChunksmithError: The file system refused, for instance because it is full. What was there before is untouched.
    """
    data = _to_arrow(table, rows)
    _check_name(name)
    if name == EMPTY_PART:
        raise ValueError(f"the name {EMPTY_PART!r} belongs to the empty file that every table has")
    return _write_part(folder / table / f"{name}.parquet", data)


def write_empty_tables(folder: Path) -> None:
    """Make every table's folder, each with a zero-row file, so that readers work before the first row is written."""
    for table, schema in SCHEMAS.items():
        target = folder / table / f"{EMPTY_PART}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_part(target, schema.empty_table())


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 text file in one step; an existing file is replaced.

    Raises:
        ChunksmithError: The file system refused. What was there before is untouched.
    """
    _replace_file(path, text.encode())


def remove_temporary_files(folder: Path) -> None:
    """Remove what a killed writer left in ``folder``. Only safe while nothing else writes there."""
    for path in folder.glob(f".*{_TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


def _write_part(path: Path, data: pa.Table) -> Path:
    sink = pa.BufferOutputStream()
    # Parts have few rows: a dictionary per column would cost time and bytes and save none.
    pq.write_table(data, sink, compression="zstd", use_dictionary=False)
    _replace_file(path, sink.getvalue())
    return path


def _replace_file(path: Path, content: bytes | pa.Buffer) -> None:
    # Process and thread in the name: two writers never share a temporary file.
    temporary = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}{_TEMPORARY_SUFFIX}"
    try:
        try:
            _write_and_sync(temporary, content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ChunksmithError(f"{path}: cannot write: {error.strerror}. Earlier records are untouched.") from error


def _write_and_sync(path: Path, content: bytes | pa.Buffer) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut: the folder's own entry has to reach the disk too (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
