"""Whole columns of a table, for an analysis that looks at every row.

A pyarrow dataset, which ``read_arrow`` asks, can leave rows out but judges each, and it reads a column of lists of
structs with all their fields, which cost more than all other columns of a trial together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from orchestrator.errors import ChunksmithError
from orchestrator.records.migrations import migrate
from orchestrator.records.parts import UNREADABLE
from orchestrator.records.reader import require_known_versions
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.table_folder import damaged, files_of, is_readable

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())


def read_columns(folder: Path, table: str, columns: Sequence[str]) -> pa.Table:
    """Columns of all rows of a table. Texts come as dictionary arrays, which ``codes_of`` and ``rows_with`` understand.

    Args:
        folder: Folder of the run.
        table: Key of ``SCHEMAS``.
        columns: ``column.field`` is a field of the structs in a list column; it comes under this name as a list of
            structs of that field alone.

    Raises:
        ChunksmithError: The table's folder is missing, a file is damaged, or rows have another schema version.
    """
    path = folder / table
    if not path.is_dir():
        raise ChunksmithError(f"{folder}: the table {table!r} is missing; this is not a complete run folder.")
    schema = pa.schema([(name, _kind(table, name)) for name in dict.fromkeys([*columns, "schema_version"])])
    for is_last in (False, False, True):
        try:
            data = pa.concat_tables([schema.empty_table(), *(_read(file, schema) for file in files_of(path))])
        except FileNotFoundError as error:
            # A compaction has put other files there since the folder was listed.
            if is_last:
                raise ChunksmithError(f"{path}: files vanish while they are read.") from error
        except UNREADABLE as error:
            broken = next((file for file in files_of(path) if not is_readable(file)), None)
            if broken is None:
                raise
            raise damaged(broken) from error
        else:
            break
    require_known_versions(path, data)
    return migrate(data, table).select(list(columns))


def codes_of(column: pa.ChunkedArray[Any]) -> tuple[NDArray[np.int64], pa.Array[Any]]:
    """Of a dictionary column, the place of each value in the dictionary, and the dictionary; null is at -1."""
    coded: Any = column.unify_dictionaries().combine_chunks()
    return np.asarray(coded.indices.fill_null(-1), dtype=np.int64), coded.dictionary


def rows_with(column: pa.ChunkedArray[Any], *values: str | None) -> NDArray[np.bool_]:
    """Which rows of a dictionary column have one of these values."""
    codes, texts = codes_of(column)
    # The last place is that of null.
    return np.array([text in values for text in [*texts.to_pylist(), None]], dtype=bool)[codes]


def _kind(table: str, name: str) -> pa.DataType:
    column, _, inner = name.partition(".")
    kind = SCHEMAS[table].field(column).type
    if inner:
        return pa.list_(pa.struct([(inner, kind.value_type.field(inner).type)]))
    return _TEXT if pa.types.is_string(kind) else kind


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    leaves = {name: name.replace(".", ".list.element.") for name in schema.names}
    # Opened once: a writer may put another file in its place at any time.
    with pa.OSFile(str(path), "r") as source:
        metadata = pq.read_metadata(source)
        known = {metadata.schema.column(place).path for place in range(len(metadata.schema))}
        texts = [field.name for field in schema if field.type == _TEXT and field.name in known]
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=texts)
        data = file.read(columns=[leaf for leaf in leaves.values() if leaf in known])
    # What an older file lacks is null.
    columns = [
        data[name.partition(".")[0]].cast(field.type) if leaves[name] in known else pa.nulls(data.num_rows, field.type)
        for name, field in zip(schema.names, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
