"""The full trials of a run by columns: a run may have a million, and only a handful is looked at one by one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.records import (
    FULL_FIDELITY,
    RunFolder,
    codes_of,
    parse_object,
    parse_objects,
    read_arrow,
    read_columns,
    rows_with,
)

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_COLUMNS = ("trial", "fidelity", "outcome", "failure", "ratio", "point")
_RATIOS = "objectives.ratio"


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
        is_one = len(spec.objectives) == 1
        table = read_columns(run.path, "trials", _COLUMNS if is_one else (*_COLUMNS, _RATIOS))
        if not (is_full := rows_with(table["fidelity"], None, "full")).all():
            table = table.filter(pa.array(is_full))
        recorded = _integers(table["trial"])
        order = np.argsort(recorded, kind="stable")
        if (twice := np.flatnonzero(np.diff(recorded[order]) == 0)).size:
            raise ChunksmithError(f"{run.path}: trials/ holds trial {recorded[order][twice[0]]} twice.")
        # Rows of the complete ones, in the order of their numbers.
        rows = order[(rows_with(table["outcome"], "complete") & np.asarray(table["ratio"].is_valid()))[order]]
        codes, points = codes_of(table["point"])
        codes = codes[rows]
        # The dictionary holds the points of the other trials, too.
        is_used = np.bincount(codes, minlength=len(points)) > 0
        if is_one:
            ratios = np.asarray(table["ratio"], dtype=np.float64)[rows, None]
        else:
            ratios = _objectives(run, table[_RATIOS], rows, recorded, spec)
        return cls(
            run=run,
            recorded=recorded[order],
            counts={"trials": _count(table["outcome"]), "failures": _count(table["failure"].drop_null())},
            numbers=recorded[rows],
            ratios=ratios,
            codes=np.cumsum(is_used)[codes] - 1,
            texts=tuple(map(str, points.filter(pa.array(is_used)).to_pylist())),
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

    def best_first(self, sign: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Row and point of the best trial of each text, by the first ratio, the best first; equal ones in the order of
        their numbers. Only the points that are asked for are read from their texts.

        Args:
            sign: 1 where less is better, -1 where more is.

        Raises:
            ChunksmithError: As ``points``.
        """
        for row in self._best_of_each(self.codes, len(self.texts), sign):
            code = int(self.codes[row])
            where = f"{self.run.path}: trial {self.numbers[row]}: point"
            yield int(row), parse_object(self.texts[code], where=where)

    def points_of(self, rows: Integers) -> list[dict[str, Any]]:
        """Points of some trials.

        Raises:
            ChunksmithError: As ``points``.
        """
        texts = [self.texts[code] for code in self.codes[rows].tolist()]
        return parse_objects(texts, where=lambda at: f"{self.run.path}: trial {self.numbers[rows[at]]}: point")

    def best_of_each_point(self, sign: float) -> Integers:
        """Rows of the trials with the best first ratio of their point, the best first, no point twice.

        Args:
            sign: 1 where less is better, -1 where more is.
        """
        groups = np.array(_groups(self.points), dtype=np.int64)
        return self._best_of_each(groups[self.codes], int(groups.max(initial=-1)) + 1, sign)

    def _best_of_each(self, groups: Integers, count: int, sign: float) -> Integers:
        """Rows of the best trial of each group, a number below ``count``, the best first."""
        losses = sign * self.ratios[:, 0]
        best = np.full(count, np.inf)
        np.minimum.at(best, groups, losses)
        rows = np.flatnonzero(losses == best[groups])
        first = np.empty(count, dtype=np.int64)
        # Of several assignments to one place the last stays: backwards, that of the first trial.
        first[groups[rows][::-1]] = rows[::-1]
        return np.asarray(first[np.lexsort((first, best))], dtype=np.int64)

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


def _objectives(
    run: RunFolder, column: pa.ChunkedArray[Any], rows: Integers, numbers: Integers, spec: RunSpec
) -> Floats:
    """Ratios of every objective in some rows. ``numbers`` are those of all trials, row by row."""
    lists: Any = column.combine_chunks()
    sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 1))[rows]
    if (wrong := np.flatnonzero(sizes != len(spec.objectives))).size:
        raise ChunksmithError(
            f"{run.path}: trial {numbers[rows[wrong[0]]]} has {sizes[wrong[0]]} objectives, "
            f"but {run.spec.name} says {len(spec.objectives)}."
        )
    flat = np.asarray(pc.struct_field(lists.values, "ratio"), dtype=np.float64)
    places = np.asarray(lists.offsets)[rows, None] + np.arange(len(spec.objectives))
    return np.asarray(flat[places], dtype=np.float64)
