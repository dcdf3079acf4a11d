"""What a benchmark leaves on disk: each block as soon as it has ended, and one trial at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.measurement import MeasuredBlock
from orchestrator.records import RunFolder, collect, write_rows, write_text_atomic
from orchestrator.sweep.bench.plan import BenchPlan
from orchestrator.sweep.bench.rows import TRIAL, BenchEnd, block_row, request_rows, trial_row
from orchestrator.sweep.bench.targets import BenchTarget
from orchestrator.sweep.pool import WarmEngine

PLAN_FILE = "bench.json"
"""Holds the plan and the target. With a ``spec.yaml``, ``chunksmith sweep --resume`` would take it for a sweep."""


class BenchRecords:
    """Writes into the run folder of one benchmark; the caller holds its lock.

    Raises:
        ChunksmithError: The file system refused.
    """

    def __init__(self, run: RunFolder, plan: BenchPlan, target: BenchTarget, engine: WarmEngine | None = None) -> None:
        self._run, self._plan, self._target = run, plan, target
        self.path = run.path
        self._write_json(PLAN_FILE, {"plan": plan.to_dict(), "target": target.describe()})
        engines = [] if engine is None else [{"group": dict(engine.group), **asdict(engine.info)}]
        here = {**collect(), "command": sys.argv, "seed": plan.seed}
        self._write_json(run.provenance.name, {"engines": engines, "processes": [here]})

    def block(self, number: int, block: MeasuredBlock) -> None:
        """Write or replace a block, its requests first: what has a row has all its requests."""
        name = f"bench-{number:05d}"
        write_rows(self.path, "requests", name, request_rows(self._plan, number, block))
        write_rows(self.path, "blocks", name, [block_row(self._plan, self._target, number, block)])

    def end(self, blocks: Sequence[MeasuredBlock], end: BenchEnd) -> None:
        """Write the trial."""
        write_rows(self.path, "trials", f"bench-{TRIAL:05d}", [trial_row(self._plan, self._target, blocks, end)])

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        write_text_atomic(self.path / name, json.dumps(content, indent=1, default=str) + "\n")
