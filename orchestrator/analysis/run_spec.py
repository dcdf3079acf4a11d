"""What the analysis needs of a run's ``spec.yaml``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from orchestrator.errors import UserError, unknown_name
from orchestrator.records import BLOCKS
from orchestrator.records.schemas import DIRECTIONS

# A metric may be missing from a block; the other floating-point columns describe the block, its load generator or the
# kernel lab.
METRICS = tuple(
    field.name
    for field in BLOCKS
    if field.nullable and pa.types.is_floating(field.type) and not field.name.startswith(("slip_", "lab_"))
)
"""Columns of the blocks table that can be an objective."""


@dataclass(frozen=True)
class RunSpec:
    """The few keys of a resolved spec that decide the answer.

    Attributes:
        study: Name of the study.
        metric: One of ``METRICS``; of several objectives the first.
        direction: ``minimize`` or ``maximize``.
        objectives: Metric and direction of every objective.
        tolerance: Gap between two log probabilities below which the accuracy guard excuses another token; 0 or more.
        confirm_points: How many of the best points are to be confirmed, 0 or more.
        knobs: Names of the knobs of the space.
        load_knobs: Those of them that belong to the workload or the load.
        baseline: The values that the spec names for the baseline; null for a knob means its value at engine start.
        plugin: The plugin's settings at engine start, null where vLLM's own value stays.
    """

    study: str
    metric: str
    direction: str
    objectives: tuple[tuple[str, str], ...]
    tolerance: float
    confirm_points: int
    knobs: tuple[str, ...]
    load_knobs: tuple[str, ...]
    baseline: Mapping[str, Any]
    plugin: Mapping[str, Any]

    def baseline_point(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The baseline as a point of the space, under the load of another point."""
        return {knob: point.get(knob) if knob in self.load_knobs else self.baseline.get(knob) for knob in self.knobs}

    @property
    def baseline_names(self) -> dict[str, Any]:
        """What sets the baseline apart from vLLM's own default: the values that the spec names for it."""
        # The plugin's sizes. Its switches and its planner change neither rows nor chunks.
        started = {name: value for name, value in self.plugin.items() if type(value) is int}
        return started | {name: value for name, value in self.baseline.items() if value is not None}

    @property
    def minimize(self) -> bool:
        """Whether less is better."""
        return self.direction == "minimize"

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """Read the keys that the attributes come from; others are ignored.

        Raises:
            UserError: The file cannot be read, or one of the keys is missing or wrong.
        """
        try:
            spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{path}: cannot read: {error.strerror}. A run without its spec has no answer.") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
        objective = _objective(path, spec, "objective")
        # Absent before runs could have several.
        several = spec.get("objectives") or []
        if not isinstance(several, list):
            raise UserError(f"{path}: objectives must be a list, got {several!r}.")
        objectives = [_objective(path, {f"objectives.{at}": one}, f"objectives.{at}") for at, one in enumerate(several)]
        tolerance = _get(path, spec, "accuracy", "tolerance")
        number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if not number or not math.isfinite(tolerance) or tolerance < 0:
            raise UserError(f"{path}: accuracy.tolerance must be a number from 0 up, got {tolerance!r}.")
        points = _get(path, spec, "confirm", "points")
        if type(points) is not int or points < 0:
            raise UserError(f"{path}: confirm.points must be a whole number from 0 up, got {points!r}.")
        space = _mapping(path, spec, "space")
        return cls(
            study=_text(path, spec, "study"),
            metric=objective[0],
            direction=objective[1],
            objectives=tuple(objectives) or (objective,),
            tolerance=float(tolerance),
            confirm_points=points,
            knobs=tuple(space),
            load_knobs=tuple(name for name in space if _text(path, spec, "space", name, "scope") == "load"),
            baseline=_mapping(path, spec, "baseline"),
            plugin=_mapping(path, spec, "engine", "plugin"),
        )


def _objective(path: Path, spec: object, key: str) -> tuple[str, str]:
    metric, direction = _text(path, spec, key, "metric"), _text(path, spec, key, "direction")
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS, where=f"{path}: {key}.metric")
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS, where=f"{path}: {key}.direction")
    return metric, direction


def _text(path: Path, spec: object, *keys: str) -> str:
    value = _get(path, spec, *keys)
    if not isinstance(value, str):
        raise UserError(f"{path}: {'.'.join(keys)} must be a text, got {value!r}.")
    return value


def _mapping(path: Path, spec: object, *keys: str) -> Mapping[str, Any]:
    value = _get(path, spec, *keys)
    if not isinstance(value, Mapping):
        raise UserError(f"{path}: {'.'.join(keys)} must be a mapping of keys, got {value!r}.")
    return value


def _get(path: Path, spec: object, *keys: str) -> Any:
    value = spec
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            raise UserError(f"{path}: {'.'.join(keys)} is missing. A run's spec is written by `chunksmith sweep`.")
        value = value[key]
    return value
