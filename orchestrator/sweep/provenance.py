"""``provenance.json`` of a run: every process that worked on it, and every engine that it started."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.records import collect, write_text_atomic
from orchestrator.records.store import mask
from orchestrator.sweep.pool import WarmEngine
from orchestrator.sweep.spec import SweepSpec


class Provenance:
    """The file as it stands, with this process added to it. Raises ChunksmithError when it cannot be written.

    Any thread may add an engine; one writes.
    """

    def __init__(self, path: Path, spec: SweepSpec) -> None:
        self._path, self._adding, self._is_written = path, threading.Lock(), False
        self._facts: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"engines": [], "processes": []}
        )
        command = [mask(word) for word in sys.argv]
        here = {**collect(), "command": command, "seed": spec.seed, "baseline": spec.baseline_point()}
        self._facts["processes"].append(here)
        self.write()

    def add_engine(self, warm: WarmEngine, warm_up_s: float, *, write: bool = True) -> None:
        """What an engine was started with and what it says is in force; ``warm_up_s`` is the length of its first
        block, which has just ended. Without ``write`` it is kept for the next ``write``: the file grows with the
        engines, and many may start at a time."""
        warm_at = datetime.now(UTC).isoformat()
        engine = {"group": dict(warm.group), "warm_up_s": warm_up_s, "warm_at": warm_at, **asdict(warm.info)}
        with self._adding:
            self._facts["engines"].append(engine)
            self._is_written = False
        if write:
            self.write()

    def write(self) -> None:
        """Bring the file up to date."""
        with self._adding:
            if self._is_written:
                return
            text = json.dumps(self._facts, indent=1, default=str)
            self._is_written = True
        write_text_atomic(self._path, text + "\n")
