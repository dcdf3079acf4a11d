"""Reading a run's tables, also while a sweep is still writing them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pandas.api.extensions import ExtensionDtype

from orchestrator.errors import ChunksmithError
from orchestrator.records.migrations import OLDEST, migrate
from orchestrator.records.schemas import SCHEMA_VERSION, SCHEMAS

# Without these a nullable integer column would turn into floats as soon as one value is missing.
_PANDAS_TYPES: dict[pa.DataType, ExtensionDtype] = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


FULL_FIDELITY = pc.is_null(pc.field("fidelity")) | (pc.field("fidelity") == "full")
"""Rows of ``trials`` and ``blocks`` that were measured in full: what a ladder measured below that is left out. In rows
of schema version 3 and before the column is null."""


def read_arrow(
    folder: Path, table: str, *, where: pc.Expression | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """One table of a run, as Arrow.

    Args:
        folder: Folder of the run.
        table: Key of ``SCHEMAS``.
        where: Keep only the rows for which this holds, for instance ``pc.field("phase") == "confirm"``.
        columns: Read only these; all if left out.

    Raises:
        ValueError: Unknown table.
        ChunksmithError: The table's folder is missing, or its rows have another schema version.
    """
    if table not in SCHEMAS:
        raise ValueError(f"unknown table {table!r}; known are {', '.join(SCHEMAS)}")
    path = folder / table
    if not path.is_dir():
        raise ChunksmithError(f"{folder}: the table {table!r} is missing; this is not a complete run folder.")
    # The first file's schema would decide otherwise, and hide or mistype the columns of all others.
    wanted = None if columns is None else [*dict.fromkeys([*columns, "schema_version"])]
    data = ds.dataset(str(path), schema=SCHEMAS[table], format="parquet").to_table(filter=where, columns=wanted)
    versions = pc.unique(data["schema_version"]).to_pylist()
    if not set(versions) <= set(range(OLDEST, SCHEMA_VERSION + 1)):
        found = ", ".join(sorted(str(version) for version in versions))
        raise ChunksmithError(
            f"{path}: rows of schema version {found}; this Chunksmith reads {OLDEST} to {SCHEMA_VERSION}. "
            "Read the run with the Chunksmith that wrote it (see provenance.json)."
        )
    data = migrate(data, table)
    return data if columns is None else data.select(list(columns))


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
    points = [parse_object(text, where=f"{folder}: trials: point") for text in trials["point"]]
    knobs = pd.DataFrame(points, index=trials.index).add_prefix("knob.")
    return pd.concat([trials, knobs], axis=1)


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
