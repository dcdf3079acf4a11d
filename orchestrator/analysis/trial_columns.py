"""The full trials of a run by columns: a run may have a million, and only a handful is looked at one by one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.analysis.confirmed import Row
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.errors import ChunksmithError
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_objects, read_arrow

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_COLUMNS = ("trial", "outcome", "failure", "ratio", "point")
_CODED = ("outcome", "failure", "point", "objectives")


@dataclass(frozen=True)
class TrialColumns:
    """The complete trials, in order, and counts of all.

    Attributes:
        run: Folder of the run.
        recorded: Numbers of all trials, increasing.
        counts: ``trials`` by outcome and ``failures`` by class.
        numbers: Of the trials that are complete and have a ratio, increasing. The others below are theirs:
        ratios: Candidate / baseline, one row per trial and one column per objective.
        codes: Place of each trial's point in ``texts``.
        texts: The points, each once, as the records have them.
    """

    run: RunFolder
    recorded: Integers
    counts: Mapping[str, Mapping[str, int]]
    numbers: Integers
    ratios: Floats
    codes: Integers
    texts: tuple[str, ...]

    @classmethod
    def read(cls, run: RunFolder, spec: RunSpec) -> TrialColumns:
        """Read what the answer needs of every trial.

        Raises:
            ChunksmithError: A trial is recorded twice, or with another objective than the spec's.
        """
        _require_objective(run, spec)
        several = len(spec.objectives) > 1
        columns = [*_COLUMNS, "objectives"] if several else _COLUMNS
        table = read_arrow(run.path, "trials", where=FULL_FIDELITY, columns=columns, as_codes=_CODED)
        recorded = _integers(table["trial"])
        order = np.argsort(recorded, kind="stable")
        if (twice := np.flatnonzero(np.diff(recorded[order]) == 0)).size:
            raise ChunksmithError(f"{run.path}: trials/ holds trial {recorded[order][twice[0]]} twice.")
        counts = {"trials": _count(table["outcome"]), "failures": _count(table["failure"].drop_null())}
        complete = table.filter((pc.field("outcome") == "complete") & pc.is_valid(pc.field("ratio")))
        numbers = _integers(complete["trial"])
        order = np.argsort(numbers, kind="stable")
        points: Any = complete["point"].unify_dictionaries().combine_chunks()
        codes = _integers(points.indices)[order]
        # The dictionary holds the points of the other trials, too.
        is_used = np.bincount(codes, minlength=len(points.dictionary)) > 0
        ratios = _objectives(run, complete, numbers, spec) if several else complete["ratio"].to_numpy()[:, None]
        return cls(
            run=run,
            recorded=np.sort(recorded),
            counts=counts,
            numbers=numbers[order],
            ratios=np.asarray(ratios[order], dtype=np.float64),
            codes=np.cumsum(is_used)[codes] - 1,
            texts=tuple(points.dictionary.filter(pa.array(is_used)).to_pylist()),
        )

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """The texts as objects.

        Raises:
            ChunksmithError: One of them is not a JSON object; the message names the first trial that has it.
        """
        _, first = np.unique(self.codes, return_index=True)
        return parse_objects(
            self.texts, where=lambda code: f"{self.run.path}: trial {self.numbers[first[code]]}: point"
        )

    def best_of_each_point(self, sign: float) -> Integers:
        """Rows of the trials with the best first ratio of their point, the best first, no point twice.

        Args:
            sign: 1 where less is better, -1 where more is.
        """
        # Stable, and the rows are in the order of their numbers: of equal ratios the first trial comes first.
        order = np.argsort(sign * self.ratios[:, 0], kind="stable")
        groups = np.array(_groups(self.points), dtype=np.int64)
        first = np.empty(len(groups), dtype=np.int64)
        # Of several assignments to one place the last stays: backwards, that of the best trial.
        first[groups[self.codes[order]][::-1]] = np.arange(len(order))[::-1]
        return order[np.sort(first[: groups.max(initial=-1) + 1])]

    def with_values(self, values: Mapping[str, Any]) -> Integers:
        """Codes of the points that have all these values; a knob that a point lacks is null."""
        codes = list(range(len(self.points)))
        for name, value in values.items():
            codes = [code for code in codes if self.points[code].get(name) == value]
        return np.array(codes, dtype=np.int64)

    def rows(self, numbers: Iterable[int]) -> dict[int, Row]:
        """All columns of some trials, by their number."""
        wanted = pc.field("trial").isin(pa.array(list(numbers), pa.int32()))
        found = read_arrow(self.run.path, "trials", where=FULL_FIDELITY & wanted).to_pylist()
        return {row["trial"]: row for row in found}


def point_key(value: Any) -> Hashable:
    """Equal for values from JSON that are equal, so that a set can hold them."""
    if isinstance(value, dict):
        return (dict, *sorted((name, point_key(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return (list, *map(point_key, value))
    return value  # type: ignore[no-any-return]


def _groups(points: Sequence[Mapping[str, Any]]) -> list[int]:
    """A number for each point, the same for those that are equal: their texts may differ, as 1 and 1.0 do."""
    known: dict[Hashable, int] = {}
    try:
        if len({tuple(point) for point in points}) == 1:
            # The same knobs in the same order, as one program writes them.
            return [known.setdefault(tuple(point.values()), len(known)) for point in points]
    except TypeError:
        known.clear()  # a value is a list
    return [known.setdefault(point_key(point), len(known)) for point in points]


def _require_objective(run: RunFolder, spec: RunSpec) -> None:
    differs = (pc.field("metric") != spec.metric) | (pc.field("direction") != spec.direction)
    columns = ["trial", "metric", "direction"]
    # Statistics of the files tell that there is no such row, and next to nothing is read.
    for row in read_arrow(run.path, "trials", where=FULL_FIDELITY & differs, columns=columns).slice(0, 1).to_pylist():
        raise ChunksmithError(
            f"{run.path}: trial {row['trial']} has the objective {row['direction']} {row['metric']}, "
            f"but {run.spec.name} says {spec.direction} {spec.metric}."
        )


def _integers(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Integers:
    return np.asarray(column, dtype=np.int64)


def _count(column: pa.ChunkedArray[Any]) -> dict[str, int]:
    counted: Any = pc.value_counts(column.unify_dictionaries())
    return {str(one["values"]): one["counts"] for one in counted.to_pylist()}


def _objectives(run: RunFolder, complete: pa.Table, numbers: Integers, spec: RunSpec) -> Floats:
    """Ratios of every objective."""
    lists = complete["objectives"].combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(lists), 1).to_numpy(zero_copy_only=False)
    if (wrong := np.flatnonzero(sizes != len(spec.objectives))).size:
        raise ChunksmithError(
            f"{run.path}: trial {numbers[wrong[0]]} has {sizes[wrong[0]]} objectives, "
            f"but {run.spec.name} says {len(spec.objectives)}."
        )
    flat = pc.struct_field(pc.list_flatten(lists), "ratio").to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float64).reshape(-1, len(spec.objectives))
