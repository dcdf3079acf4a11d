"""Points that an earlier run measured under the same conditions are taken from it, not measured again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import yaml

from orchestrator.errors import ChunksmithError
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_object, read_arrow
from orchestrator.search import Point
from orchestrator.sweep.spec import SweepSpec

_CONDITIONS = (
    "model",
    "tiny_model",
    "engine",
    "workload",
    "workloads",
    "load",
    "loads",
    "slo",
    "rate_search",
    "objective",
    "objectives",
    "resources",
)
"""Keys of a spec that decide what a trial measures, beside the point and the baseline."""
_VERSIONS = ("python", "chunksmith", "vllm", "torch", "transformers")
_GPU_FACTS = ("name", "memory_bytes", "driver")

_RESULT = (
    "ratio",
    "ratio_low",
    "ratio_high",
    "pairs",
    "pairing",
    "baseline_value",
    "candidate_value",
    "workspace_rows",
    "workspace_bytes",
    "workspace_alignment",
    "builders",
    "kv_blocks",
)


@dataclass(frozen=True)
class Reusable:
    """A trial that an earlier run measured under the conditions of a spec.

    Attributes:
        origin: The run and the trial, as ``reused_from`` of the trials table has it.
        point: Text, see ``scoped``.
        machine: Text, see ``machine_of``.
        columns: Its result, by the columns of the trials table.
    """

    origin: str
    point: str
    machine: str
    columns: Mapping[str, Any]


def reusable(spec: SweepSpec, run: RunFolder) -> list[Reusable]:
    """Complete trials that a run measured itself as this study would measure them.

    What has to agree: of the spec the model, the engine's arguments, environment and plugin, workloads, loads, SLO,
    objective, resources and the baseline; and, trial by trial, the machine. A machine that is not known agrees with
    none.

    Raises:
        ChunksmithError: The run's files cannot be read.
    """
    try:
        theirs = yaml.safe_load(run.spec.read_text())
        engines = json.loads(run.provenance.read_text())["engines"]
        if conditions(theirs) != conditions(yaml.safe_load(spec.to_yaml())):
            return []
        scopes = {name: section["scope"] for name, section in theirs["space"].items()}
        machines = {engine["engine_id"]: machine_of(engine) for engine in engines}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ChunksmithError(f"{run.path}: spec.yaml or provenance.json cannot be read: {error}") from error
    own = (pc.field("outcome") == "complete") & pc.field("reused_from").is_null() & FULL_FIDELITY
    found = []
    for row in read_arrow(run.path, "trials", where=own).sort_by("trial").to_pylist():
        machine = machines.get(row["engine_id"])
        if machine is not None:
            point = scoped(parse_object(row["point"], where=f"{run.path}: trials: point"), scopes)
            origin = f"{run.path} trial {row['trial']}"
            found.append(Reusable(origin, point, machine, {name: row[name] for name in _RESULT}))
    return found


def conditions(spec: Mapping[str, Any]) -> str:
    """What of a resolved spec decides a measurement, as text that is equal where it is."""
    scopes = {name: section["scope"] for name, section in spec["space"].items()}
    kept = {key: spec.get(key) for key in _CONDITIONS}
    # How many are measured at a time, each on its own engine, is no condition of any of them.
    kept["resources"] = {key: value for key, value in (spec.get("resources") or {}).items() if key != "parallel"}
    return json.dumps({**kept, "baseline": scoped(spec["baseline"], scopes)}, sort_keys=True)


def scoped(point: Point, scopes: Mapping[str, str]) -> str:
    """A point as text: a value at engine start is no value, and a knob counts with its scope."""
    given = {f"{scopes[name]} {name}": value for name, value in point.items() if value is not None}
    return json.dumps(given, sort_keys=True)


def machine_of(engine: Mapping[str, Any]) -> str | None:
    """What an engine runs on, as text that is equal where it is; None when that is not known.

    Args:
        engine: Fields of ``EngineInfo``.
    """
    node = engine.get("node") or {}
    try:
        facts = {
            "engine": [engine["kind"], engine["version"]],
            "versions": [node["versions"][name] for name in _VERSIONS],
            "cpu": [node["cpu"]["model"], node["cpu"]["cores_available"]],
            "memory_bytes": node["memory_bytes"],
            "gpus": [[gpu[name] for name in _GPU_FACTS] for gpu in node["gpus"]],
        }
    except (KeyError, TypeError):
        return None
    return json.dumps(facts, sort_keys=True)
