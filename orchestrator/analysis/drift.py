"""Whether the baseline itself moved while a run was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.measurement.stats import baseline_drift
from orchestrator.measurement.stats.drift import MIN_BLOCKS
from orchestrator.records import RunFolder, codes_of, read_columns, rows_with

TOLERANCE = 0.05
"""A proven drift beyond this share is told. Pairs cancel it; absolute values of the run do not."""

_FILTERED: Final = ("role", "phase", "fidelity", "dropped")


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


def run_drift(run: RunFolder, metric: str, *, is_one_load: bool = False) -> RunDrift | None:
    """Drift on the engine, and under the load, with the most blocks at the baseline; None with fewer than 6 of them.

    Args:
        is_one_load: Whether the load is the same in the whole run, so that the baseline has one point. The points, the
            largest part of what is read, are then left alone.
    """
    keys = ["engine_id"] if is_one_load else ["engine_id", "point"]
    blocks = read_columns(run.path, "blocks", [*keys, *_FILTERED, metric, "started_at"])
    values = np.asarray(blocks[metric], dtype=np.float64)
    counted = rows_with(blocks["role"], "baseline") & rows_with(blocks["phase"], "search", "confirm")
    counted &= rows_with(blocks["fidelity"], None, "full") & ~np.asarray(blocks["dropped"]) & (values > 0)
    if not counted.any():
        return None
    engines, names = codes_of(blocks["engine_id"])
    group = engines[counted]
    if not is_one_load:
        # Under another load its figures differ without any drift.
        points = codes_of(blocks["point"])[0][counted]
        group = np.unique(group * (points.max() + 1) + points, return_inverse=True)[1]
    times = np.asarray(blocks["started_at"].cast(pa.int64()), dtype=np.int64)[counted]
    sizes = np.bincount(group)
    # Of several with as many blocks the one that began first.
    rows = np.flatnonzero((sizes == sizes.max())[group])
    own = np.flatnonzero(group == group[rows[np.argmin(times[rows])]])
    own = own[np.argsort(times[own], kind="stable")]
    seconds = times[own] / 1e6
    if len(own) < MIN_BLOCKS or not (np.diff(seconds) > 0).all():
        return None
    engine = names[int(engines[counted][own[0]])].as_py()
    found = baseline_drift(values[counted][own], seconds)
    return RunDrift(engine, len(own), found.change, found.low, found.high, found.exceeds(TOLERANCE))
