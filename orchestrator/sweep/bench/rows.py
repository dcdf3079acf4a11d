"""Rows of the three tables for a benchmark: one trial, its blocks and their requests, all of phase ``bench``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from orchestrator.engines import InForce
from orchestrator.measurement import GOODPUT_AT_SLO, MeasuredBlock
from orchestrator.records import SCHEMA_VERSION
from orchestrator.search import serve_command
from orchestrator.sweep import rows
from orchestrator.sweep.bench.plan import BenchPlan
from orchestrator.sweep.bench.targets import BenchTarget
from orchestrator.sweep.rows import Phase, Row
from orchestrator.sweep.spec import direction_of

PHASE: Phase = "bench"
TRIAL = 0


@dataclass(frozen=True, kw_only=True)
class BenchEnd:
    """How a benchmark ended.

    Attributes:
        value: Figure of the objective, where there is one.
    """

    outcome: Literal["complete", "failed", "lost"]
    started_at: datetime
    failure: str | None = None
    detail: str | None = None
    value: float | None = None


def trial_row(plan: BenchPlan, target: BenchTarget, blocks: Sequence[MeasuredBlock], end: BenchEnd) -> Row:
    """The row of ``trials``."""
    metric = GOODPUT_AT_SLO if plan.find is not None else plan.metric
    config = target.config()
    args, env = serve_command(config, target.point) if config is not None else ([], {})
    force = blocks[-1].result.in_force if blocks else InForce()
    return {
        **_identity(plan),
        "outcome": end.outcome,
        "failure": end.failure,
        "failure_detail": end.detail,
        "point": json.dumps(dict(target.point), sort_keys=True),
        "attempt": 0,
        "engine_id": target.name,
        "engine_group": json.dumps(dict(target.group), sort_keys=True),
        "engine_log": target.log_path,
        "metric": metric,
        "direction": direction_of(metric),
        "pairs": 0,
        "pairing": "one engine",
        "baseline_value": end.value,
        "workspace_rows": force.workspace_rows,
        "workspace_bytes": force.workspace_bytes,
        "workspace_alignment": force.workspace_alignment,
        "builders": force.builders,
        "kv_blocks": force.kv_blocks,
        "serve_args": args,
        "env": json.dumps(env, sort_keys=True),
        "seed": plan.seed,
        "started_at": end.started_at,
        "finished_at": datetime.now(UTC),
        "measuring_s": sum(block.result.duration_s for block in blocks),
    }


def block_row(plan: BenchPlan, target: BenchTarget, number: int, block: MeasuredBlock) -> Row:
    """The row of ``blocks`` for block ``number``."""
    return rows.block_row(_identity(plan), PHASE, number, block, engine_id=target.name, point=target.point)


def request_rows(plan: BenchPlan, number: int, block: MeasuredBlock) -> list[Row]:
    """The rows of ``requests`` for block ``number``."""
    return rows.rows_of_requests(_identity(plan), PHASE, number, block)


def _identity(plan: BenchPlan) -> Row:
    return {"schema_version": SCHEMA_VERSION, "study": plan.study, "trial": TRIAL}
