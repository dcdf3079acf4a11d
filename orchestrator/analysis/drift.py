"""Whether the baseline itself moved while a run was measured."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.measurement.stats import baseline_drift
from orchestrator.measurement.stats.drift import MIN_BLOCKS
from orchestrator.records import FULL_FIDELITY, RunFolder, read_arrow

TOLERANCE = 0.05
"""A proven drift beyond this share is told. Pairs cancel it; absolute values of the run do not."""


@dataclass(frozen=True)
class RunDrift:
    """Change of the baseline's objective from the first to the last of its blocks on one engine, as a ratio.

    ``is_large`` says that the whole interval lies beyond 1 plus or minus 5 %.
    """

    engine_id: str
    blocks: int
    change: float
    low: float
    high: float
    is_large: bool


def run_drift(run: RunFolder, metric: str) -> RunDrift | None:
    """Drift on the engine, and under the load, with the most blocks at the baseline; None with fewer than 6 of them."""
    where = (pc.field("role") == "baseline") & ~pc.field("dropped") & pc.field("phase").isin(["search", "confirm"])
    blocks: pa.Table = read_arrow(run.path, "blocks", where=where & FULL_FIDELITY)
    # Under another load its figures differ without any drift.
    by_engine: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in blocks.sort_by("started_at").to_pylist():
        if row[metric] is not None and row[metric] > 0:
            by_engine[row["engine_id"], row["point"]].append(row)
    (engine_id, _), rows = max(by_engine.items(), key=lambda item: len(item[1]), default=(("", ""), []))
    times = [row["started_at"].timestamp() for row in rows]
    if len(rows) < MIN_BLOCKS or any(after <= before for before, after in itertools.pairwise(times)):
        return None
    found = baseline_drift([row[metric] for row in rows], times)
    return RunDrift(engine_id, len(rows), found.change, found.low, found.high, found.exceeds(TOLERANCE))
