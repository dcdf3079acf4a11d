"""``provenance.json`` of a run: every process that worked on it, and every engine that it started."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.records import collect, write_text_atomic
from orchestrator.sweep.pool import WarmEngine
from orchestrator.sweep.spec import SweepSpec


class Provenance:
    """The file as it stands, with this process added to it. Raises ChunksmithError when it cannot be written."""

    def __init__(self, path: Path, spec: SweepSpec) -> None:
        self._path = path
        self._facts: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"engines": [], "processes": []}
        )
        here = {**collect(), "command": sys.argv, "seed": spec.seed, "baseline": spec.baseline_point()}
        self._facts["processes"].append(here)
        self._write()

    def add_engine(self, warm: WarmEngine, warm_up_s: float) -> None:
        """What an engine was started with and what it says is in force; ``warm_up_s`` is the length of its first
        block."""
        self._facts["engines"].append({"group": dict(warm.group), "warm_up_s": warm_up_s, **asdict(warm.info)})
        self._write()

    def _write(self) -> None:
        write_text_atomic(self._path, json.dumps(self._facts, indent=1, default=str) + "\n")
