"""Rows of earlier schema versions, as rows of the present one.

Every version so far only added columns. One that may be null is null in older rows; one that may not gets here what was
true of every row of that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.records.schemas import SCHEMA_VERSION, SCHEMAS

OLDEST: Final = 1

_SINCE: Final[Mapping[int, Mapping[str, Mapping[str, str | int]]]] = {
    # Pairs always shared an engine, loads were closed loops, and nothing planned by area was counted.
    2: {
        "trials": {"pairing": "one engine"},
        "blocks": {
            "outcome": "complete",
            "load": "{}",
            "failures": "{}",
            "area_plans": 0,
            "area_limited": 0,
            "long_prefill_cuts": 0,
        },
        "requests": {},
    },
    # The kernel lab's columns; all may be null.
    3: {"trials": {}, "blocks": {}, "requests": {}},
    # Several objectives, fidelity, time in engine starts, where a reused result is from; all may be null.
    4: {"trials": {}, "blocks": {}, "requests": {}},
}
"""What the columns that a version added hold in rows from before it, by version and table."""


def migrate(data: pa.Table, table: str) -> pa.Table:
    """The rows with what later versions added filled in; ``schema_version`` still says which version wrote them.

    Args:
        data: Columns of the present schema, ``schema_version`` among them; those that a file lacks are null.
        table: Key of ``SCHEMAS``.
    """
    for version in range(OLDEST + 1, SCHEMA_VERSION + 1):
        defaults = {name: value for name, value in _SINCE[version][table].items() if name in data.schema.names}
        if not defaults:
            continue
        is_newer = pc.greater_equal(data["schema_version"], pa.scalar(version, pa.int32()))
        for name, value in defaults.items():
            field = data.schema.field(name)
            filled = pc.fill_null(data[name], pa.scalar(value, field.type))
            column = pc.if_else(is_newer, data[name], filled)
            data = data.set_column(data.schema.get_field_index(name), field, column)
    return data


def as_present(data: pa.Table, table: str) -> pa.Table:
    """A whole file's rows in the present schema, whichever version wrote them.

    Args:
        data: All columns of a file.
        table: Key of ``SCHEMAS``.

    Raises:
        pa.ArrowException: A column has another type.
    """
    schema = SCHEMAS[table]
    columns = [
        data[field.name].cast(field.type) if field.name in data.schema.names else pa.nulls(data.num_rows, field.type)
        for field in schema
    ]
    filled = migrate(pa.Table.from_arrays(columns, names=schema.names), table)
    return pa.Table.from_arrays(filled.columns, schema=schema)
