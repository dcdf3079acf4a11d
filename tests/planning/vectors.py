"""The recorded answers of real vLLM releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "data" / "conformance-vectors.json"


def vectors(kind: str) -> list[dict[str, Any]]:
    """Rows of one kind: ``align``, ``dense``, ``sparse``, ``dsv4_plan`` or ``ctx_plan``."""
    rows: list[dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))[kind]
    assert rows
    return rows


def dcp_sizes(row: dict[str, Any]) -> dict[str, int]:
    """The three sizes that decode context parallelism ties together, under our names."""
    return {"block_size": row["block"], "dcp": row["dcp"], "interleave": row["interleave"]}
