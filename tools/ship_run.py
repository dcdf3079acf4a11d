"""Cuts a recorded run down to what the notebooks need, and takes this machine's paths out of it.

    python -m tools.ship_run runs/cpu-demo results/data/cpu-demo

Each table becomes one file. Logs, the study's journal and the times of single tokens stay behind; the answer stays what
it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.records import SCHEMAS

_MODEL = "tiny-mla"
_DROPPED = ("token_times_s",)
"""Lists of numbers for each request, at which neither the answer nor a notebook looks."""


def ship(source: Path, target: Path) -> None:
    """Write the run at ``target``, which must not exist."""
    target.mkdir(parents=True)
    for table in SCHEMAS:
        parts = [pq.read_table(file) for file in sorted((source / table).glob("*.parquet"))]
        data = pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])
        rows = [_cleaned(row) for row in data.to_pylist()]
        (target / table).mkdir()
        pq.write_table(
            pa.Table.from_pylist(rows, schema=data.schema), target / table / "part.parquet", compression="zstd"
        )
    for record in sorted((source / "soak").glob("*.json")):
        (target / "soak").mkdir(exist_ok=True)
        soak = _cleaned(json.loads(record.read_text()))
        (target / "soak" / record.name).write_text(json.dumps(soak, indent=1) + "\n")
    (target / "spec.yaml").write_text((source / "spec.yaml").read_text())
    provenance = json.loads((source / "provenance.json").read_text())
    (target / "provenance.json").write_text(json.dumps(_without_paths(provenance), indent=1) + "\n")


def _cleaned(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("engine_log"):
        row["engine_log"] = f"logs/{PurePosixPath(row['engine_log']).name}"
    if row.get("serve_args"):
        row["serve_args"] = [_MODEL, *row["serve_args"][1:]]
    for name in _DROPPED:
        if name in row:
            row[name] = []
    return row


def _without_paths(value: Any) -> Any:
    """The same without an engine's resolved configuration, and without absolute paths."""
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items() if key != "resolved"}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    if isinstance(value, str) and value.startswith("/"):
        return PurePosixPath(value).name
    return value


if __name__ == "__main__":
    ship(Path(sys.argv[1]), Path(sys.argv[2]))
