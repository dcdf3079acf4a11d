"""What a report shows, read once from the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from orchestrator.analysis.answer import Answer
from orchestrator.analysis.best import best
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_object, read_table


@dataclass(frozen=True)
class Facts:
    """A run, ready to be drawn.

    Attributes:
        run: Folder of the run.
        spec: The keys that decide the answer.
        answer: What the run says.
        trials: One row per full trial, in order; the knobs' values in columns ``knob.<name>``.
        pairs: One row per complete pair of blocks of the search and of the confirmation: ``trial``, ``phase``,
            ``pair``, ``started_at`` (UTC), ``baseline`` and ``candidate`` (the metric's unit) and ``ratio``.
        baseline: One row per counted block of the baseline: ``started_at`` and ``value``.
        provenance: The run's ``provenance.json``; empty if it has none.
    """

    run: RunFolder
    spec: RunSpec
    answer: Answer
    trials: pd.DataFrame
    pairs: pd.DataFrame
    baseline: pd.DataFrame
    provenance: Mapping[str, Any]

    @property
    def knobs(self) -> list[str]:
        """Knobs with more than one value among the trials, in the order of the space."""
        return [name for name in self.spec.knobs if self.trials[f"knob.{name}"].map(repr).nunique() > 1]

    @property
    def complete(self) -> pd.DataFrame:
        """The trials that have a ratio."""
        return self.trials[(self.trials["outcome"] == "complete") & self.trials["ratio"].notna()]


def read_facts(run_path: Path | str) -> Facts:
    """Read a run. A sweep may still be writing to it.

    Raises:
        UserError, ChunksmithError: As ``orchestrator.analysis.best``.
    """
    run = RunFolder.open(run_path)
    spec, answer = RunSpec.read(run.spec), best(run.path)
    trials = read_table(run.path, "trials", where=FULL_FIDELITY).sort_values("trial", ignore_index=True)
    points = [parse_object(text, where=f"{run.path}: trials: point") for text in trials["point"]]
    for name in spec.knobs:
        trials[f"knob.{name}"] = pd.Series([point.get(name) for point in points], index=trials.index, dtype=object)
    counted = FULL_FIDELITY & ~pc.field("dropped") & pc.field("phase").isin(["search", "confirm"])
    blocks = read_table(run.path, "blocks", where=counted)
    blocks = blocks[blocks[spec.metric].notna() & (blocks[spec.metric] > 0)].sort_values("started_at")
    return Facts(
        run=run,
        spec=spec,
        answer=answer,
        trials=trials,
        pairs=_pairs(blocks, spec.metric),
        baseline=blocks.loc[blocks["role"] == "baseline", ["started_at", spec.metric]].set_axis(
            ["started_at", "value"], axis=1
        ),
        provenance=_provenance(run),
    )


def _pairs(blocks: pd.DataFrame, metric: str) -> pd.DataFrame:
    keys = ["trial", "phase", "pair"]
    values = blocks.pivot_table(index=keys, columns="role", values=metric, aggfunc="first", observed=True)
    values = values.reindex(columns=["baseline", "candidate"]).dropna()
    started = blocks.groupby(keys, observed=True)["started_at"].min().rename("started_at")
    pairs = values.join(started).reset_index().sort_values("started_at", ignore_index=True)
    pairs["ratio"] = pairs["candidate"] / pairs["baseline"]
    return pairs


def _provenance(run: RunFolder) -> Mapping[str, Any]:
    if not run.provenance.exists():
        return {}
    return parse_object(run.provenance.read_text(encoding="utf-8"), where=str(run.provenance))


def text_of(value: object) -> str:
    """A knob's value for people: None is the value at engine start."""
    return "default" if value is None else value if isinstance(value, str) else json.dumps(value)
