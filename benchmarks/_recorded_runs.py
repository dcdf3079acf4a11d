"""A run of thousands of trials as a sweep leaves it: journal and tables, without having measured them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from orchestrator.engines.faulty import FaultyEngines
from orchestrator.records import SCHEMAS, RunFolder, manifest, read_arrow
from orchestrator.records.compaction import CompactWriter
from orchestrator.records.parts import Part
from orchestrator.search import Point
from orchestrator.search.fidelity.listed import ListedPoints
from orchestrator.search.portfolio import ARM_ATTR
from orchestrator.sweep import Progress, Sweep, SweepSpec
from orchestrator.sweep.proposals import Proposals, make_proposals
from orchestrator.sweep.spec import SoakSection
from orchestrator.sweep.study import Told, TrialBook, open_study


def record_run(run: RunFolder, spec: SweepSpec, trials: int, say: Callable[[str], None]) -> None:
    """Fill a run folder with so many complete trials: each a copy of one that a sweep on the faulty engine measured,
    at a point and with a ratio of its own."""
    run.spec.write_text(spec.to_yaml())
    with _unflushed():
        pattern = _one_trial(run, spec)
        proposals = make_proposals(spec, spec.engine_config(), engines=2)
        rng = np.random.default_rng(0)
        rows = rng.permutation(len(proposals.points))[:trials]
        points = [proposals.points[row] for row in rows]
        ratios = np.exp(0.05 * rng.standard_normal(trials)).tolist()
        _tell(run, spec, Proposals(points, proposals.choices, ListedPoints(points, proposals.choices)), ratios)
        say("the journal is written")
        for table, of_one in pattern.items():
            _write(run, table, of_one, points, ratios)
        say("the tables are written")


def _one_trial(run: RunFolder, spec: SweepSpec) -> dict[str, pa.Table]:
    """The rows of one trial that a sweep measured, in a folder beside the run."""
    space = {"mla_workspace_rows": spec.space["mla_workspace_rows"]}
    no_confirmation = spec.confirm.model_copy(update={"points": 0})
    changes = {"trials": 1, "space": space, "confirm": no_confirmation, "soak": SoakSection(rounds=0)}
    beside = RunFolder.create(run.path.with_name(f"{run.path.name}-pattern"))
    with (
        Path(os.devnull).open("w") as nowhere,
        beside.lock(),
        Progress(Console(file=nowhere), total=1, finalists=0) as progress,
    ):
        Sweep(spec.model_copy(update=changes), beside, FaultyEngines(), progress).run()
    return {table: read_arrow(beside.path, table) for table in SCHEMAS}


def _write(run: RunFolder, table: str, rows: pa.Table, points: Sequence[Point], ratios: Sequence[float]) -> None:
    """The rows of one trial as those of every trial, in one file."""
    count = len(points)
    data = rows.take(np.tile(np.arange(rows.num_rows), count))
    columns: dict[str, Any] = {"trial": np.repeat(np.arange(count), rows.num_rows)}
    if table == "trials":
        columns |= {
            "point": [json.dumps(dict(point), sort_keys=True) for point in points],
            "ratio": ratios,
            "ratio_low": [0.98 * ratio for ratio in ratios],
            "ratio_high": [1.02 * ratio for ratio in ratios],
        }
    for name, values in columns.items():
        place = data.schema.get_field_index(name)
        data = data.set_column(place, data.schema.field(place), pa.array(values, data.schema.field(place).type))
    writer = CompactWriter(run.table(table), table)
    writer.add(data, [Part(f"trial-{number:05d}", rows.num_rows) for number in range(count)])
    writer.close()
    with manifest.locked(run.table(table)) as log:
        log.add(*writer.entries)


def _tell(run: RunFolder, spec: SweepSpec, proposals: Proposals, ratios: Sequence[float]) -> None:
    """Ask for every point in turn and tell its ratio, as a sweep does."""
    study = open_study(run, name=spec.study, proposals=proposals, directions=["minimize"])
    book = TrialBook(study, proposals, len(ratios))
    while (asked := book.next()) is not None:
        number, _ = asked
        # What the portfolio writes of each.
        study._storage.set_trial_system_attr(book._asked[number]._trial_id, ARM_ATTR, "model")
        book.tell(number, Told(ratios=[ratios[number]], log_variance=1e-4, trial_s=1.5))


@contextmanager
def _unflushed() -> Iterator[None]:
    """Leave the writing to the operating system: no power is cut here, and 200,000 flushes take minutes."""
    flush = os.fsync
    os.fsync = _keep_in_memory  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = flush


def _keep_in_memory(descriptor: object) -> None:
    """In place of ``os.fsync``."""
