"""Did the knobs do anything? A figure is only kept when the engine itself says that the point was in force."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.engines import BlockResult, EngineInfo
from orchestrator.planning import dense_workspace_rows, rule_for_vllm
from orchestrator.search import Point
from orchestrator.vllm_plugin import DEFAULT_WORKSPACE_CAP

LABEL = "knob-not-in-force"


def not_in_force(knobs: Iterable[str], point: Point, info: EngineInfo, block: BlockResult) -> str | None:
    """The first knob that a block shows no sign of, with what was seen; None when all of them were in force.

    A workspace cap must be the size that arithmetic gives for it, and the path that uses the workspace must have
    been entered. A scheduler knob must be the value that the scheduler reports, and no step may have gone beyond it.

    Args:
        knobs: Knobs of the space, of any scope.
        point: The live and engine-scope values that the block was meant to run with.
    """
    force, counted = block.in_force, block.counters
    for knob in knobs:
        value = point.get(knob)
        if knob == "mla_workspace_rows":
            if counted.workspace_entries == 0:
                return (
                    f"{knob}: the block never entered the context path that uses the workspace "
                    f"({counted.scheduler_steps} steps, largest {counted.max_step_tokens} tokens): is chunked prefill "
                    "on?"
                )
            expected = _expected_rows(value, point, info)
            if expected is not None and force.workspace_rows != expected:
                return f"{knob}: {force.workspace_rows} rows are in force, not {expected}"
        elif knob in ("prefill_chunk_size", "prefill_area_limit") and counted.area_plans == 0:
            return f"{knob}: no prefill was planned by area"
        elif knob == "max_num_batched_tokens" and value is not None:
            if force.max_num_batched_tokens != value or not 0 < counted.max_step_tokens <= int(value):
                return f"{knob}: asked {value}, in force {force.max_num_batched_tokens}, seen {counted.max_step_tokens}"
        elif knob == "max_num_seqs" and value is not None:
            if force.max_num_seqs != value or not 0 < counted.max_running_requests <= int(value):
                return f"{knob}: asked {value}, in force {force.max_num_seqs}, seen {counted.max_running_requests}"
        elif knob == "long_prefill_token_threshold" and value not in (None, force.long_prefill_token_threshold):
            return f"{knob}: asked {value}, in force {force.long_prefill_token_threshold}"
    return None


def _expected_rows(cap: object, point: Point, info: EngineInfo) -> int | None:
    """Rows that the cap gives by arithmetic alone; None for the sparse rule, whose top-k the engine does not report."""
    if info.sparse:
        return None
    seqs = point.get("max_num_seqs") or info.in_force.max_num_seqs
    assert isinstance(seqs, int)
    return dense_workspace_rows(
        max_model_len=info.max_model_len,
        max_num_seqs=seqs,
        block_size=info.block_size,
        dcp=info.dcp,
        interleave=info.interleave,
        cap=cap if isinstance(cap, int) else DEFAULT_WORKSPACE_CAP,
        rule=rule_for_vllm(info.version),
    )
