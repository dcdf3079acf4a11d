"""The run folder, its tables and their schemas. Needs neither Ray, torch nor vLLM."""

from orchestrator.records.atomic import write_text_atomic
from orchestrator.records.columns import codes_of, read_columns, rows_with
from orchestrator.records.folder import RunFolder
from orchestrator.records.provenance import collect
from orchestrator.records.reader import (
    FULL_FIDELITY,
    parse_object,
    parse_objects,
    read_arrow,
    read_table,
    read_trials,
    to_pandas,
)
from orchestrator.records.schemas import BLOCKS, REQUESTS, SCHEMA_VERSION, SCHEMAS, TRIALS
from orchestrator.records.soak import SoakRecord, SoakState, soak_path
from orchestrator.records.writer import write_parts, write_rows

__all__ = [
    "BLOCKS",
    "FULL_FIDELITY",
    "REQUESTS",
    "SCHEMAS",
    "SCHEMA_VERSION",
    "TRIALS",
    "RunFolder",
    "SoakRecord",
    "SoakState",
    "codes_of",
    "collect",
    "parse_object",
    "parse_objects",
    "read_arrow",
    "read_columns",
    "read_table",
    "read_trials",
    "rows_with",
    "soak_path",
    "to_pandas",
    "write_parts",
    "write_rows",
    "write_text_atomic",
]
