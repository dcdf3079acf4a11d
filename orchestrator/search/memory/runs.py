"""Earlier runs from their Parquet records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from orchestrator.errors import UserError
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_object, read_arrow
from orchestrator.search.memory.earlier import EarlierRun


def read_run(folder: Path) -> EarlierRun:
    """The complete trials of a run, by the ratio that each measured.

    Raises:
        UserError: The folder is not a run, or holds no complete trial.
        ChunksmithError: Its tables cannot be read.
    """
    run = RunFolder.open(folder)
    measured = (pc.field("outcome") == "complete") & FULL_FIDELITY
    rows = read_arrow(run.path, "trials", where=measured).sort_by("trial").to_pylist()
    if not rows:
        raise UserError(f"{folder}: has no complete trial, so there is nothing to learn from it")
    sign = {"minimize": 1.0, "maximize": -1.0}
    return EarlierRun(
        name=str(folder),
        points=[parse_object(row["point"], where=f"{folder}: trials: point") for row in rows],
        losses=np.array([sign[row["direction"]] * np.log(row["ratio"]) for row in rows]),
    )
