"""Reading a run's tables, also while a sweep is still writing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pandas.api.extensions import ExtensionDtype

from orchestrator.errors import ChunksmithError
from orchestrator.records.migrations import OLDEST, migrate
from orchestrator.records.parts import UNREADABLE
from orchestrator.records.schemas import SCHEMA_VERSION, SCHEMAS
from orchestrator.records.table_folder import files_of, is_readable

# Without these a nullable integer column would turn into floats as soon as one value is missing.
_PANDAS_TYPES: dict[pa.DataType, ExtensionDtype] = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


FULL_FIDELITY = pc.is_null(pc.field("fidelity")) | (pc.field("fidelity") == "full")
"""Rows of ``trials`` and ``blocks`` that were measured in full: what a ladder measured below that is left out. In rows
of schema version 3 and before the column is null."""


_MIXED = ("fidelity", "role")
"""Where only the filter looks at these, their codes are compared, which is faster than texts. A row group cannot be
skipped by a coded column: most groups have rows of all kinds of these, but of one phase."""


def read_arrow(
    folder: Path,
    table: str,
    *,
    where: pc.Expression | None = None,
    columns: Sequence[str] | None = None,
    as_codes: Sequence[str] = (),
) -> pa.Table:
    """One table of a run, as Arrow.

    Args:
        folder: Folder of the run.
        table: Key of ``SCHEMAS``.
        where: Keep only the rows for which this holds, for instance ``pc.field("phase") == "confirm"``.
        columns: Read only these; all if left out.
        as_codes: Columns whose texts come as dictionary arrays, which hold a value that repeats once.

    Raises:
        ValueError: Unknown table.
        ChunksmithError: The table's folder is missing, a file is damaged, or rows have another schema version.
    """
    if table not in SCHEMAS:
        raise ValueError(f"unknown table {table!r}; known are {', '.join(SCHEMAS)}")
    path = folder / table
    if not path.is_dir():
        raise ChunksmithError(f"{folder}: the table {table!r} is missing; this is not a complete run folder.")
    wanted = None if columns is None else [*dict.fromkeys([*columns, "schema_version"])]
    data = _read(path, table, as_codes, where, wanted)
    require_known_versions(path, data)
    data = migrate(data, table)
    return data if columns is None else data.select(list(columns))


def require_known_versions(path: Path, data: pa.Table) -> None:
    """Refuse rows of a schema version that is not known.

    Raises:
        ChunksmithError: There are some; ``path`` is put in front of the message.
    """
    versions = pc.unique(data["schema_version"]).to_pylist()
    if not set(versions) <= set(range(OLDEST, SCHEMA_VERSION + 1)):
        found = ", ".join(sorted(str(version) for version in versions))
        raise ChunksmithError(
            f"{path}: rows of schema version {found}; this Chunksmith reads {OLDEST} to {SCHEMA_VERSION}. "
            "Read the run with the Chunksmith that wrote it (see provenance.json)."
        )


def _read(
    path: Path, table: str, as_codes: Sequence[str], where: pc.Expression | None, columns: list[str] | None
) -> pa.Table:
    # The first file's schema would decide otherwise, and hide or mistype the columns of all others.
    schema = SCHEMAS[table]
    filtered = [name for name in _MIXED if name in schema.names and name not in (columns or schema.names)]
    leaves: list[str] = []
    for name in dict.fromkeys([*as_codes, *filtered]):
        place, field = schema.get_field_index(name), schema.field(name)
        kind, of_field = _coded(field.type, name)
        schema, leaves = schema.set(place, field.with_type(kind)), [*leaves, *of_field]
    file_format = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=leaves))
    for is_last in (False, False, True):
        try:
            return ds.dataset(str(path), schema=schema, format=file_format).to_table(filter=where, columns=columns)
        except FileNotFoundError as error:
            # A compaction has put other files there since the folder was listed.
            if is_last:
                raise ChunksmithError(f"{path}: files vanish while they are read.") from error
        except UNREADABLE as error:
            damaged = next((file for file in files_of(path) if not is_readable(file)), None)
            if damaged is None:
                raise
            raise ChunksmithError(
                f"{damaged}: is damaged ({' '.join(str(error).split())[:200]}). "
                f"To set it aside and read the rest: chunksmith records check {path.parent} --repair"
            ) from error
    raise AssertionError("the last try returns or raises")


def _coded(kind: pa.DataType, path: str) -> tuple[pa.DataType, list[str]]:
    """A type with dictionaries in place of texts, and the Parquet columns of these."""
    if pa.types.is_string(kind):
        return pa.dictionary(pa.int32(), pa.string()), [path]
    if isinstance(kind, pa.ListType):
        member, leaves = _coded(kind.value_type, f"{path}.list.element")
        return pa.list_(kind.value_field.with_type(member)), leaves
    if isinstance(kind, pa.StructType):
        fields, leaves = [], []
        for field in kind:
            member, of_field = _coded(field.type, f"{path}.{field.name}")
            fields.append(field.with_type(member))
            leaves += of_field
        return pa.struct(fields), leaves
    return kind, []


def read_table(
    folder: Path, table: str, *, where: pc.Expression | None = None, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """One table of a run, as pandas, in no fixed row order. Integers have pandas' nullable types.

    Arguments and errors are those of ``read_arrow``.
    """
    return to_pandas(read_arrow(folder, table, where=where, columns=columns))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A table as pandas; integers have pandas' nullable types."""
    return table.to_pandas(types_mapper=lambda kind: _PANDAS_TYPES.get(kind))


def read_trials(folder: Path) -> pd.DataFrame:
    """The trials in order, with one further column ``knob.<name>`` for each knob of the points.

    Raises:
        ChunksmithError: As ``read_arrow``, or a point that is not a JSON object.
    """
    trials = read_table(folder, "trials").sort_values("trial", ignore_index=True)
    points = parse_objects(trials["point"].tolist(), where=lambda _: f"{folder}: trials: point")
    knobs = pd.DataFrame(points, index=trials.index).add_prefix("knob.")
    return pd.concat([trials, knobs], axis=1)


def parse_objects(texts: Sequence[str], *, where: Callable[[int], str]) -> list[dict[str, Any]]:
    """The JSON objects in many texts, of which each may be wrong.

    Args:
        where: What is put in front of the message about the text at a place.

    Raises:
        ChunksmithError: A text is not a JSON object.
    """
    try:
        # All at once: a tenth of the calls into the parser.
        found = json.loads(f"[{','.join(texts)}]")
    except ValueError:
        found = []
    if len(found) == len(texts) and all(type(one) is dict for one in found):
        return found  # type: ignore[no-any-return]
    return [parse_object(text, where=where(place)) for place, text in enumerate(texts)]


def parse_object(text: str, *, where: str) -> dict[str, Any]:
    """The JSON object in a text column.

    Raises:
        ChunksmithError: The text is not a JSON object; ``where`` is put in front of the message.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ChunksmithError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ChunksmithError(f"{where}: a JSON object was expected, got {text!r}")
    return value
