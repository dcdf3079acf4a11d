"""The best configuration at each load, where the load was searched too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.trial_columns import TrialColumns


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


def best_by_load(trials: TrialColumns, knobs: Sequence[str], *, minimize: bool) -> tuple[LoadBest, ...]:
    """The best complete trial for each combination of values of the load's knobs, in the order of the trials.

    Args:
        knobs: Those of scope load; without any there is nothing to tell.
    """
    if not knobs or not trials.texts:
        return ()
    keys = [json.dumps({name: point[name] for name in knobs}, sort_keys=True) for point in trials.points]
    loads = np.unique(keys, return_inverse=True)[1][trials.codes]
    order = np.lexsort((trials.numbers, trials.ratios[:, 0] if minimize else -trials.ratios[:, 0], loads))
    # The first of each load is its best trial; the loads come in the order in which trials had them.
    best = order[np.flatnonzero(np.diff(loads[order], prepend=-1))]
    best = best[np.argsort(np.unique(loads, return_index=True)[1])]
    rows = trials.rows(trials.numbers[best].tolist())
    found = []
    for place in best.tolist():
        row, point = rows[int(trials.numbers[place])], dict(trials.points[trials.codes[place]])
        load = {name: point.pop(name) for name in knobs}
        ends = (row["ratio"], row["ratio_low"], row["ratio_high"])
        found.append(LoadBest(load, row["trial"], point, *ends, pairs=row["pairs"]))
    return tuple(found)
