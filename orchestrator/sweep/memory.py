"""``memory.json`` of a run: what its study took from earlier runs when it began.

It is kept because the earlier runs may grow or go: a study that is resumed must know what it knew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.engines import EngineInfo
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder, write_text_atomic
from orchestrator.search import Point
from orchestrator.search.memory import EarlierRun, read_run
from orchestrator.sweep.reuse import Reusable, machine_of, reusable, scoped
from orchestrator.sweep.spec import SweepSpec

FILE = "memory.json"


class Memory:
    """What a study knows from earlier runs.

    Attributes:
        earlier: Runs whose ranking proposes points.
    """

    def __init__(self, spec: SweepSpec, earlier: Sequence[EarlierRun], known: Iterable[Reusable]) -> None:
        self._scopes = {name: section.scope for name, section in spec.space.items()}
        self.earlier = earlier
        self._known: dict[tuple[str, str], Reusable] = {}
        for one in known:
            # Of two runs that measured a point, the one that the spec names first.
            self._known.setdefault((one.point, one.machine), one)
        self._points = {point for point, _ in self._known}

    @classmethod
    def open(cls, run: RunFolder, spec: SweepSpec) -> Memory:
        """Read the earlier runs when a study begins; when it is resumed, what was taken from them then.

        Raises:
            UserError: A folder is not a run, or it has nothing to tell about this space.
        """
        if spec.memory is None:
            return cls(spec, [], [])
        path = run.path / FILE
        if not path.exists():
            taken = _taken(spec, [Path(folder) for folder in spec.memory.runs])
            write_text_atomic(path, json.dumps(taken) + "\n")
        try:
            content = json.loads(path.read_text())
            earlier = [EarlierRun(**{**one, "losses": np.array(one["losses"])}) for one in content["earlier"]]
            return cls(spec, earlier, [Reusable(**one) for one in content["reusable"]])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ChunksmithError(f"{path}: cannot be read: {error}") from error

    def may_hold(self, point: Point) -> bool:
        """Whether a point was measured under the conditions of the spec, on whatever machine."""
        return scoped(point, self._scopes) in self._points

    def find(self, point: Point, info: EngineInfo) -> Reusable | None:
        """The trial that measured a point on a machine like that of an engine; None when there is none."""
        machine = machine_of({"kind": info.kind, "version": info.version, "node": info.node})
        return self._known.get((scoped(point, self._scopes), machine)) if machine is not None else None


def _taken(spec: SweepSpec, folders: Sequence[Path]) -> dict[str, Any]:
    """What ``memory.json`` holds."""
    assert spec.memory is not None
    earlier, known = [], []
    for folder in folders:
        try:
            found = read_run(folder)
        except ChunksmithError as error:
            raise UserError(f"memory.runs: {error}") from error
        if spec.memory.warm_start:
            _require_shared(spec, found)
            earlier.append({"name": found.name, "points": list(found.points), "losses": found.losses.tolist()})
        if spec.memory.reuse:
            known += [asdict(one) for one in reusable(spec, RunFolder(folder))]
    return {"earlier": earlier, "reusable": known}


def _require_shared(spec: SweepSpec, run: EarlierRun) -> None:
    varied = {name for point in run.points for name in point if len({repr(one[name]) for one in run.points}) > 1}
    if not varied & set(spec.space):
        raise UserError(
            f"memory.runs: {run.name}: shares no knob with this space: it varied "
            f"{', '.join(sorted(varied)) or 'none'}, the space has {', '.join(spec.space)}"
        )
