"""Two runs against each other: another vLLM, another GPU, another day."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from orchestrator.analysis.run_spec import RunSpec
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement.distributions import t_quantile
from orchestrator.records import FULL_FIDELITY, RunFolder, read_table

FAMILY_LEVEL = 0.95
"""Confidence that all intervals of one comparison hold at once."""


@dataclass(frozen=True)
class Change:
    """One point in both runs.

    Attributes:
        point: One value per knob that both runs have; None for the baseline of both.
        before: Geometric mean of the metric in the first run, in its unit.
        after: In the second.
        ratio: ``after / before``.
        low: Lower end of its interval; 0 with too few blocks to tell.
        high: Upper end.
        blocks: Blocks in the first and in the second run.
        verdict: ``better``, ``worse`` or ``no change shown``.
    """

    point: dict[str, Any] | None
    before: float
    after: float
    ratio: float
    low: float
    high: float
    blocks: tuple[int, int]
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """What changed between two runs.

    Attributes:
        metric: The objective of both.
        direction: ``minimize`` or ``maximize``.
        level: Confidence level of one interval: all hold at once with 95 % (Bonferroni).
        changes: The baseline first, then the points that both measured, the largest regression first.
        only: How many points only the first and only the second run has.
        provenance: Facts that differ: name, value there, value here.
    """

    metric: str
    direction: str
    level: float
    changes: tuple[Change, ...]
    only: tuple[int, int]
    provenance: tuple[tuple[str, str, str], ...]


def compare(before: Path | str, after: Path | str) -> Comparison:
    """Compare the second run with the first, point by point.

    Runs are not measured in turns, so a change may also lie in the machine or its day: look at the baseline's own
    line first. Intervals are Welch's, on logarithms of the blocks' values (Welch, 1947), blocks taken as independent.

    Raises:
        UserError: A folder is no run, or the objectives differ.
        ChunksmithError: The runs have no point in common and no baseline, or records cannot be read.
    """
    runs = [RunFolder.open(path) for path in (before, after)]
    specs = [RunSpec.read(run.spec) for run in runs]
    if (specs[0].metric, specs[0].direction) != (specs[1].metric, specs[1].direction):
        raise UserError(
            f"{after}: its objective is {specs[1].direction} {specs[1].metric}, that of {before} is "
            f"{specs[0].direction} {specs[0].metric}."
        )
    metric, minimize = specs[0].metric, specs[0].minimize
    shared = [name for name in specs[0].knobs if name in specs[1].knobs]
    logs = [_logs(run, metric, shared) for run in runs]
    keys = [key for key in logs[0] if key in logs[1]]
    if not keys:
        raise ChunksmithError(f"{after}: has no measured point in common with {before}.")
    level = 1 - (1 - FAMILY_LEVEL) / len(keys)
    changes = [_change(key, logs[0][key], logs[1][key], level, minimize=minimize) for key in keys]
    sign = -1 if minimize else 1
    changes.sort(key=lambda change: (change.point is not None, sign * change.ratio))
    missing = [sum(key not in other for key in own) for own, other in (logs, logs[::-1])]
    facts = [_facts(run) for run in runs]
    differing = [
        (name, facts[0].get(name, "unknown"), facts[1].get(name, "unknown"))
        for name in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(name) != facts[1].get(name)
    ]
    return Comparison(
        metric=metric,
        direction=specs[0].direction,
        level=level,
        changes=tuple(changes),
        only=(missing[0], missing[1]),
        provenance=tuple(differing),
    )


def _logs(run: RunFolder, metric: str, knobs: Sequence[str]) -> dict[str, list[float]]:
    """Logarithms of a run's counted blocks, by point; the baseline's under the empty key."""
    counted = FULL_FIDELITY & ~pc.field("dropped") & pc.field("phase").isin(["search", "confirm"])
    columns = ["role", "point", metric, "failed_requests"]
    blocks = read_table(run.path, "blocks", where=counted, columns=columns)
    blocks = blocks[(blocks[metric] > 0) & (blocks["failed_requests"] == 0)]
    found: dict[str, list[float]] = {}
    for (role, point), values in blocks.groupby(["role", "point"], sort=False, observed=True)[metric]:
        known = json.loads(str(point))
        key = "" if role == "baseline" else json.dumps({name: known.get(name) for name in knobs}, sort_keys=True)
        found.setdefault(key, []).extend(np.log(values.to_numpy(dtype=float)))
    return found


def _change(key: str, before: Sequence[float], after: Sequence[float], level: float, *, minimize: bool) -> Change:
    first, second = np.asarray(before), np.asarray(after)
    difference = float(second.mean() - first.mean())
    low, high = _welch(first, second, difference, level)
    verdict = "no change shown"
    if low > 1 or high < 1:
        verdict = "worse" if (low > 1) == minimize else "better"
    return Change(
        point=json.loads(key) if key else None,
        before=math.exp(float(first.mean())),
        after=math.exp(float(second.mean())),
        ratio=math.exp(difference),
        low=low,
        high=high,
        blocks=(len(first), len(second)),
        verdict=verdict,
    )


def _welch(first: np.ndarray, second: np.ndarray, difference: float, level: float) -> tuple[float, float]:
    """Welch's interval on a difference of means of logarithms, as a ratio."""
    if len(first) < 2 or len(second) < 2:
        return 0.0, math.inf
    parts = [float(sample.var(ddof=1)) / len(sample) for sample in (first, second)]
    variance = sum(parts)
    if variance == 0.0:
        return math.exp(difference), math.exp(difference)
    squares = sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, (first, second), strict=True))
    half = t_quantile(variance**2 / squares, (1 + level) / 2) * math.sqrt(variance)
    return math.exp(difference - half), math.exp(difference + half)


def _facts(run: RunFolder) -> dict[str, str]:
    """What may explain a difference: versions and hardware."""
    if not run.provenance.exists():
        return {}
    try:
        provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ChunksmithError(f"{run.provenance}: not JSON: {error}") from error
    flat = pd.json_normalize({key: value for key, value in provenance.items() if not isinstance(value, list)}).iloc[0]
    facts = {str(name): str(value) for name, value in flat.items() if not isinstance(value, (list, dict))}
    for name in ("kind", "version", "host"):
        values = {str(engine.get(name)) for engine in provenance.get("engines", []) if engine.get(name) is not None}
        if values:
            facts[f"engines.{name}"] = ", ".join(sorted(values))
    return facts
