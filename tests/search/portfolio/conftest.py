"""Spaces and studies that several tests use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.search.portfolio import Value
from orchestrator.search.portfolio.features import Points
from orchestrator.search.portfolio.history import History

GRID: list[dict[str, Value]] = [
    {"rows": rows, "seqs": seqs, "backend": backend, "fused": fused}
    for rows, seqs, backend, fused in itertools.product(
        [2**power for power in range(7, 15)], [16, 24, 32, 48], ["a", "b", "c"], [False, True]
    )
]
POINTS = Points.of(GRID)


def seconds(point: Mapping[str, Any]) -> float:
    """A bowl that is best at 1024 rows and 32 sequences with backend b, fused; above 1."""
    off = abs(math.log2(point["rows"]) - 10) / 3 + abs(point["seqs"] - 32) / 24
    return float(math.exp(off + 0.3 * (point["backend"] != "b") + 0.2 * (not point["fused"])))


def history(rows: list[int], losses: list[float], **more: Any) -> History:
    """A history of one objective to be minimised; NaN marks a failure."""
    tried = np.array(rows, dtype=np.int32)
    fields: dict[str, Any] = {
        "tried": tried,
        "values": np.array(losses, dtype=float).reshape(-1, 1),
        "noise": np.zeros(len(rows)),
        "arms": np.full(len(rows), -1, dtype=np.int8),
        "minimise": np.array([True]),
        "pending": np.zeros(0, dtype=np.int32),
        "asked": tried,
    }
    return History(**{**fields, **more})
