"""Tuning tables in the T4 format of the auto-tuning community: every configuration of a kernel, measured."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.portfolio import Value

Point = dict[str, Value]


@dataclass(frozen=True)
class TuningTable:
    """A brute-forced search space.

    Attributes:
        name: Of the file, without its ending.
        points: Every configuration, without the knobs that never change.
        times: Shape (N,): what each takes, in the file's unit; infinite where it fails.
    """

    name: str
    points: list[Point]
    times: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The time of the fastest configuration."""
        return float(self.times.min())


def read_tables(folder: Path) -> list[TuningTable]:
    """Every ``*.json.gz`` or ``*.json`` of a folder, by name.

    Raises:
        SystemExit: The folder holds none.
    """
    files = sorted(file for file in folder.glob("*.json*") if file.suffix in (".gz", ".json"))
    if not files:
        raise SystemExit(f"{folder}: holds no tuning table (*.json or *.json.gz)")
    return [read_table(file) for file in files]


def read_table(file: Path) -> TuningTable:
    """Read one table. The time of a configuration is its measurement named first in ``objectives``."""
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    results: list[dict[str, Any]] = json.loads(raw)["results"]
    names = list(results[0]["configuration"])
    values = {name: {json.dumps(one["configuration"][name]) for one in results} for name in names}
    kept = [name for name in names if len(values[name]) > 1]
    points = [{name: one["configuration"][name] for name in kept} for one in results]
    times = np.array([_time(one) for one in results])
    return TuningTable(file.name.split(".")[0], points, times)


def _time(result: dict[str, Any]) -> float:
    if result["invalidity"] != "correct":
        return float("inf")
    name = result["objectives"][0]
    value = next(one["value"] for one in result["measurements"] if one["name"] == name)
    return float(value) if isinstance(value, (int, float)) and value > 0 else float("inf")
