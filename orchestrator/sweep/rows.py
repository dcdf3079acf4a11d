"""Rows of the three tables, from what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from orchestrator.engines import BlockResult, EngineInfo, InForce
from orchestrator.measurement import MeasuredBlock, PairedMeasurement, count_failures
from orchestrator.measurement.stats import RatioInterval
from orchestrator.records import SCHEMA_VERSION
from orchestrator.search import Point
from orchestrator.sweep.reuse import Reusable
from orchestrator.sweep.spec import SweepSpec

Phase = Literal["search", "confirm", "accuracy", "soak", "bench"]
Outcome = Literal["complete", "infeasible", "failed", "lost"]
Pairing = Literal["one engine", "two warm engines", "alternated starts"]
"""On which engines the two roles of a pair were served."""
Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class PlacedBlock:
    """A measured block with the engine that ran it and the whole point that was in force."""

    block: MeasuredBlock
    info: EngineInfo
    point: Point


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """How a trial ended. ``measurement`` is there exactly when the outcome is complete.

    Attributes:
        starting_s: Seconds of the engine starts in it.
    """

    number: int
    point: Point
    group: Point
    outcome: Outcome
    attempt: int
    started_at: datetime
    failure: str | None = None
    detail: str | None = None
    info: EngineInfo | None = None
    log_path: str | None = None
    measurement: PairedMeasurement | None = None
    pairing: Pairing = "one engine"
    starting_s: float = 0.0
    reused: Reusable | None = None


def as_dropped(blocks: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """The same blocks, kept as a record and out of every comparison."""
    return [replace(one, block=replace(one.block, dropped=True)) for one in blocks]


def trial_row(
    spec: SweepSpec,
    result: TrialResult,
    serve: tuple[list[str], dict[str, str]],
    intervals: Sequence[RatioInterval],
) -> Row:
    """The row of ``trials``. ``intervals`` are of each objective; there is none when the trial gave no number."""
    measurement = result.measurement
    interval = measurement.interval if measurement else None
    force = _last_force(measurement) if measurement else InForce()
    args, env = serve
    return {
        **_identity(spec, result.number),
        "fidelity": "full",
        "outcome": result.outcome,
        "failure": result.failure,
        "failure_detail": result.detail,
        "point": _json(result.point),
        "attempt": result.attempt,
        "engine_id": result.info.engine_id if result.info else None,
        "engine_group": _json(result.group),
        "engine_log": result.info.log_path if result.info else result.log_path,
        "metric": spec.objective.metric,
        "direction": spec.objective.direction,
        "ratio": interval.ratio if interval else None,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "pairs": interval.pairs if interval else 0,
        "objectives": _objectives(spec, intervals) if spec.objectives else None,
        "verdict": measurement.verdict if measurement else None,
        "stop": measurement.stop if measurement else None,
        "pairing": result.pairing,
        "baseline_value": _mean(measurement, "baseline", spec),
        "candidate_value": _mean(measurement, "candidate", spec),
        "workspace_rows": force.workspace_rows,
        "workspace_bytes": force.workspace_bytes,
        "workspace_alignment": force.workspace_alignment,
        "builders": force.builders,
        "kv_blocks": force.kv_blocks,
        "serve_args": args,
        "env": _json(env),
        "seed": spec.seed,
        "started_at": result.started_at,
        "finished_at": datetime.now(UTC),
        "measuring_s": sum(block.result.duration_s for block in measurement.blocks) if measurement else 0.0,
        "starting_s": result.starting_s,
        "reused_from": result.reused.origin if result.reused else None,
        **(result.reused.columns if result.reused else {}),
    }


def block_rows(spec: SweepSpec, trial: int, phase: Phase, blocks: Sequence[PlacedBlock]) -> list[Row]:
    """The rows of ``blocks``, in the order of measuring."""
    return [
        block_row(_identity(spec, trial), phase, number, one.block, engine_id=one.info.engine_id, point=one.point)
        for number, one in enumerate(blocks)
    ]


def request_rows(spec: SweepSpec, trial: int, phase: Phase, blocks: Sequence[PlacedBlock]) -> list[Row]:
    """The rows of ``requests`` of the same blocks."""
    identity = _identity(spec, trial)
    return [row for number, one in enumerate(blocks) for row in rows_of_requests(identity, phase, number, one.block)]


def block_row(identity: Row, phase: Phase, number: int, block: MeasuredBlock, *, engine_id: str, point: Point) -> Row:
    """The row of ``blocks`` for the block of that number; ``identity`` names schema, study and trial."""
    result = block.result
    failures = count_failures(result.requests)
    return {
        **identity,
        "fidelity": "full",
        "phase": phase,
        "block": number,
        "pair": block.pair,
        "role": block.role,
        "dropped": block.dropped,
        "outcome": block.outcome,
        "failure": block.failure,
        "engine_id": engine_id,
        "point": _json(point),
        "prompts_seed": block.seed,
        "load": block.load,
        "started_at": result.started_at,
        "duration_s": result.duration_s,
        "retune_ms": block.retune_s * 1000.0,
        "requests": len(result.requests),
        "failed_requests": sum(failures.values()),
        "failures": _json(failures),
        "slip_p50_ms": block.slip.p50_s * 1000.0 if block.slip else None,
        "slip_p99_ms": block.slip.p99_s * 1000.0 if block.slip else None,
        "goodput_at_slo": None,
        **block.metrics,
        "workspace_rows": result.in_force.workspace_rows,
        "workspace_bytes": result.in_force.workspace_bytes,
        **asdict(result.counters),
        "cached_tokens": sum(request.cached_tokens for request in result.requests),
        **_lab_columns(result),
    }


def rows_of_requests(identity: Row, phase: Phase, number: int, block: MeasuredBlock) -> list[Row]:
    """The rows of ``requests`` for the block of that number."""
    return [
        {
            **identity,
            "phase": phase,
            "block": number,
            "request": request.index,
            "role": block.role,
            "prompt_tokens": request.prompt_tokens,
            "output_tokens": request.output_tokens,
            "cached_tokens": request.cached_tokens,
            "arrival_s": request.arrival_s,
            "send_s": request.send_s,
            "first_token_s": request.first_token_s,
            "end_s": request.end_s,
            "token_times_s": list(request.token_times_s),
            "output_token_ids": list(request.output_token_ids),
            "top2_gaps": None if request.top2_gaps is None else list(request.top2_gaps),
            "error": request.error,
        }
        for request in block.result.requests
    ]


def _lab_columns(result: BlockResult) -> Row:
    """What the kernel lab alone tells; empty for another engine. Its result's class would need torch, and is not
    imported for that."""
    lab = getattr(result, "lab", None)
    if lab is None:
        return {}
    counted = {f"lab_{name}": value for name, value in lab.columns().items()}
    return {"chunk_order": getattr(result.in_force, "chunk_order", None), **counted}


def _identity(spec: SweepSpec, trial: int) -> Row:
    return {"schema_version": SCHEMA_VERSION, "study": spec.study, "trial": trial}


def _objectives(spec: SweepSpec, intervals: Sequence[RatioInterval]) -> list[Row]:
    return [
        {
            "metric": one.metric,
            "direction": one.direction,
            "ratio": interval.ratio,
            "ratio_low": interval.low,
            "ratio_high": interval.high,
        }
        for one, interval in zip(spec.objectives, intervals, strict=False)
    ]


def _json(value: Any) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _last_force(measurement: PairedMeasurement) -> InForce:
    return [block for block in measurement.blocks if block.role == "candidate"][-1].result.in_force


def _mean(
    measurement: PairedMeasurement | None, role: Literal["baseline", "candidate"], spec: SweepSpec
) -> float | None:
    if measurement is None:
        return None
    values = measurement.values(role, spec.objective.metric)
    return sum(values) / len(values)
