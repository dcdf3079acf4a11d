"""The best configuration at each load, where the load was searched too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.confirmed import Row, object_of
from orchestrator.records import RunFolder


@dataclass(frozen=True)
class LoadBest:
    """The best trial of the search under one load. It chose itself, so it looks better than it is.

    Attributes:
        load: One value per knob of the load.
        trial: Number of the trial.
        point: One value per other knob.
        ratio: To the baseline under the same load, with the interval of the search.
        pairs: Pairs behind it.
    """

    load: dict[str, Any]
    trial: int
    point: dict[str, Any]
    ratio: float
    ratio_low: float
    ratio_high: float
    pairs: int


def best_by_load(
    run: RunFolder, trials: Iterable[Row], knobs: Sequence[str], *, minimize: bool
) -> tuple[LoadBest, ...]:
    """The best complete trial for each combination of values of the load's knobs, in the order of the trials.

    Args:
        knobs: Those of scope load; without any there is nothing to tell.
    """
    found: dict[str, LoadBest] = {}
    for row in sorted(trials, key=lambda row: row["trial"]) if knobs else ():
        if row["outcome"] != "complete" or row["ratio"] is None:
            continue
        point = object_of(run, row, "point")
        load = {name: point.pop(name) for name in knobs}
        key = json.dumps(load, sort_keys=True)
        best = found.get(key)
        if best is None or (row["ratio"] < best.ratio if minimize else row["ratio"] > best.ratio):
            ends = (row["ratio"], row["ratio_low"], row["ratio_high"])
            found[key] = LoadBest(load, row["trial"], point, *ends, pairs=row["pairs"])
    return tuple(found.values())
