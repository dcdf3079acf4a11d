"""Whether the baseline itself moved while a run was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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
    where = where & FULL_FIDELITY & (pc.field(metric) > 0)
    keys = ["engine_id", "point"]
    columns, coded = [*keys, metric, "started_at"], [*keys, "phase"]
    blocks: pa.Table = read_arrow(run.path, "blocks", where=where, columns=columns, as_codes=coded)
    if not blocks.num_rows:
        return None
    # Under another load its figures differ without any drift.
    engines, points = (_codes(blocks[key]) for key in keys)
    group = engines * (points.max() + 1) + points
    times = np.asarray(blocks["started_at"].cast(pa.int64()), dtype=np.int64)
    order = np.argsort(times, kind="stable")
    _, first, counts = np.unique(group[order], return_index=True, return_counts=True)
    # Of several with as many blocks the one that began first.
    chosen = first[np.lexsort((first, -counts))[0]]
    own = order[group[order] == group[order[chosen]]]
    seconds = times[own] / 1e6
    if len(own) < MIN_BLOCKS or not (np.diff(seconds) > 0).all():
        return None
    values = np.asarray(blocks[metric], dtype=np.float64)[own]
    engine = blocks["engine_id"][int(own[0])].as_py()
    found = baseline_drift(values, seconds)
    return RunDrift(engine, len(own), found.change, found.low, found.high, found.exceeds(TOLERANCE))


def _codes(column: pa.ChunkedArray[Any]) -> NDArray[np.int64]:
    """Whole numbers that are equal where the texts are."""
    coded: Any = column.unify_dictionaries().combine_chunks()
    return np.asarray(coded.indices, dtype=np.int64)
