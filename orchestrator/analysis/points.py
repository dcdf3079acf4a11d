"""The measured points of a run as one table, for every question that is not the winner's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.analysis.run_spec import RunSpec
from orchestrator.errors import ChunksmithError
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_objects, read_arrow, to_pandas

_COLUMNS = (
    *("trial", "point", "ratio", "ratio_low", "ratio_high", "pairs", "baseline_value", "candidate_value"),
    *("workspace_rows", "workspace_bytes", "kv_blocks"),
)


@dataclass(frozen=True)
class MeasuredPoints:
    """The complete trials of a run.

    Attributes:
        run: Its folder.
        spec: The keys that decide the answer.
        frame: One row per complete full trial, in order: ``trial``, ``point`` (JSON), one column per knob under its
            own name, ``ratio`` with ``ratio_low`` and ``ratio_high``, ``pairs``, ``baseline_value`` and
            ``candidate_value`` (the metric's unit), ``workspace_rows``, ``workspace_bytes``, ``kv_blocks``.
    """

    run: RunFolder
    spec: RunSpec
    frame: pd.DataFrame

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """A number for each trial, from 0 in their order, the same where the points are."""
        return np.asarray(pd.factorize(self.frame["point"])[0], dtype=np.int64)

    @cached_property
    def firsts(self) -> pd.DataFrame:
        """The first trial of each point, in the order of ``groups``."""
        return self.frame.iloc[np.unique(self.groups, return_index=True)[1]]

    @cached_property
    def varied(self) -> list[str]:
        """Knobs with more than one value, in the order of the space."""
        return [name for name in self.spec.knobs if _varies(self.firsts[name].tolist())]

    def require(self, least: int) -> MeasuredPoints:
        """Itself.

        Raises:
            ChunksmithError: Fewer complete trials than ``least``.
        """
        if len(self.frame) < least:
            some = "no complete trial" if self.frame.empty else f"{len(self.frame)} complete trials"
            raise ChunksmithError(f"{self.run.path}: {some}; this needs at least {least}.")
        return self


def read_points(run_path: Path | str, *, columns: Sequence[str] = _COLUMNS) -> MeasuredPoints:
    """Read the complete trials of a run.

    Args:
        columns: Those of the trials table that are wanted, ``point`` and ``trial`` among them.

    Raises:
        UserError: Not a run folder, or its spec lacks a key.
        ChunksmithError: The records cannot be read.
    """
    run = RunFolder.open(run_path)
    spec = RunSpec.read(run.spec)
    complete = (pc.field("outcome") == "complete") & pc.is_valid(pc.field("ratio")) & FULL_FIDELITY
    table = read_arrow(run.path, "trials", where=complete, columns=columns, as_codes=["point"])
    if (np.diff(table["trial"].to_numpy()) < 0).any():
        table = table.sort_by("trial")
    # Many trials share few points: each text is read once.
    coded: Any = table["point"].unify_dictionaries().combine_chunks()
    objects = parse_objects(coded.dictionary.to_pylist(), where=lambda _: f"{run.path}: trials: point")
    place = table.schema.get_field_index("point")
    frame = to_pandas(table.set_column(place, "point", coded.cast(pa.string())))
    codes = coded.indices.to_numpy(zero_copy_only=False)
    for name in spec.knobs:
        values = pd.Series([point.get(name) for point in objects], dtype=object)
        frame[name] = values.to_numpy()[codes] if len(objects) else pd.Series(dtype=object)
    return MeasuredPoints(run, spec, frame)


def _varies(values: Sequence[Any]) -> bool:
    """Whether there is more than one value; 1 and True are two."""
    texts = map(repr, values)
    first = next(texts, None)
    return any(text != first for text in texts)
