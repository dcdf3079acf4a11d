"""What the planner and the scheduler did at a point, beside the baseline measured in turns with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import BLOCKS, FULL_FIDELITY, RunFolder, parse_object, read_table

_COUNTERS = (
    *("context_chunks", "workspace_entries", "area_plans", "area_limited", "long_prefill_cuts", "scheduler_steps"),
    *("max_step_tokens", "max_running_requests", "cached_tokens", "workspace_rows", "workspace_bytes"),
    *(name for name in BLOCKS.names if name.startswith("lab_")),
)


@dataclass(frozen=True)
class Counter:
    """One counter of a point's blocks.

    Attributes:
        name: A column of the blocks table.
        meaning: What it counts, from the schema.
        unit: Its unit; empty if it has none.
        candidate: Mean over the blocks at the point.
        baseline: Mean over the blocks of the baseline beside them.
    """

    name: str
    meaning: str
    unit: str
    candidate: float
    baseline: float


@dataclass(frozen=True)
class Why:
    """What happened at one trial's point.

    Attributes:
        trial: Number of the trial.
        point: One value per knob.
        outcome: How the trial ended.
        failure: Its class and detail; None where there is none.
        ratio: To the baseline; None without one.
        kv_blocks: Blocks of the KV cache; None if unknown.
        counters: Those that are not the same zero on both sides.
        blocks: How many blocks of the point.
    """

    trial: int
    point: dict[str, Any]
    outcome: str
    failure: str | None
    ratio: float | None
    kv_blocks: int | None
    counters: tuple[Counter, ...]
    blocks: int


def why(run_path: Path | str, trial: int) -> Why:
    """Explain a trial by its counters.

    Raises:
        UserError: Not a run folder, or no such trial.
        ChunksmithError: The records cannot be read.
    """
    run = RunFolder.open(run_path)
    rows = read_table(run.path, "trials", where=FULL_FIDELITY & (pc.field("trial") == trial))
    if rows.empty:
        last = read_table(run.path, "trials", columns=["trial"])["trial"].max()
        known = "none yet" if pd.isna(last) else f"0 to {last}"
        raise UserError(f"{run.path}: no trial {trial}; recorded are {known}.")
    if len(rows) > 1:
        raise ChunksmithError(f"{run.path}: trials/ holds trial {trial} twice.")
    row = rows.astype(object).where(rows.notna(), None).iloc[0]
    mine = FULL_FIDELITY & (pc.field("trial") == trial) & ~pc.field("dropped")
    mine &= pc.field("phase").isin(["search", "confirm"])
    blocks = read_table(run.path, "blocks", where=mine, columns=["role", *_COUNTERS])
    counters = blocks.groupby("role", observed=True)[list(_COUNTERS)].mean().reindex(["baseline", "candidate"])
    found = []
    for name in _COUNTERS:
        baseline, candidate = counters[name].astype(float)
        if pd.isna(candidate) or (candidate == 0 and baseline == 0):
            continue
        field = BLOCKS.field(name)
        metadata = field.metadata or {}
        meaning = metadata.get(b"description", b"").decode()
        found.append(Counter(name, meaning, metadata.get(b"unit", b"").decode(), float(candidate), float(baseline)))
    return Why(
        trial=trial,
        point=parse_object(row["point"], where=f"{run.path}: trial {trial}: point"),
        outcome=row["outcome"],
        failure=None if row["failure"] is None else f"{row['failure']}: {row['failure_detail']}",
        ratio=row["ratio"],
        kv_blocks=None if row["kv_blocks"] is None else int(row["kv_blocks"]),
        counters=tuple(found),
        blocks=int((blocks["role"] == "candidate").sum()),
    )
