"""Did the knobs do anything? A figure is only kept when the engine itself says that the point was in force."""

from __future__ import annotations

from orchestrator.engines import BlockResult, Counters, EngineInfo
from orchestrator.planning import dense_workspace_rows, rule_for_vllm
from orchestrator.search import LIVE_KNOBS, PLUGIN_KNOBS, Point, Space
from orchestrator.vllm_plugin import DEFAULT_WORKSPACE_CAP, PluginSettings

LABEL = "knob-not-in-force"


def not_in_force(
    space: Space, point: Point, plugin: PluginSettings, info: EngineInfo, block: BlockResult
) -> str | None:
    """The first knob that a block shows no sign of, with what was seen; None when all of them were in force.

    A workspace cap must give the rows that arithmetic says, and the path that uses the workspace must have been
    entered. An area knob must be the value that the worker reports, and prefills must have been planned by it. A
    scheduler knob must be the value that the scheduler reports, and no step may have gone beyond it. vLLM itself
    answers for its other arguments.

    Args:
        point: The live and engine-scope values that the block was meant to run with.
        plugin: Settings common to all engines of the study: what a plugin knob without a value goes back to.
    """
    for knob in (knob.name for knob in space.knobs if knob.name in LIVE_KNOBS):
        if reason := _unused(knob, block.counters):
            return f"{knob}: {reason}"
        start = plugin if knob in PLUGIN_KNOBS else info.in_force
        asked = point[knob] if point[knob] is not None else getattr(start, knob)
        is_rows = knob == "mla_workspace_rows"
        expected = _rows(asked, point, info) if is_rows else asked
        seen = getattr(block.in_force, "workspace_rows" if is_rows else knob)
        if expected is not None and seen != expected:
            return f"{knob}: asked {'default' if asked is None else asked}, which gives {expected}; in force is {seen}"
        if reason := _exceeded(knob, expected, block.counters):
            return f"{knob}: asked {asked}, {reason}"
    return None


def _unused(knob: str, counted: Counters) -> str | None:
    if knob == "mla_workspace_rows" and counted.workspace_entries == 0:
        return (
            "the block never entered the context path that uses the workspace "
            f"({counted.scheduler_steps} steps, largest {counted.max_step_tokens} tokens): is chunked prefill on?"
        )
    if knob in ("prefill_chunk_size", "prefill_area_limit") and counted.area_plans == 0:
        return "no prefill was planned by area"
    return None


def _exceeded(knob: str, limit: object, counted: Counters) -> str | None:
    """Whether some step of the scheduler went beyond its limit, or none was counted at all."""
    most = {
        "max_num_batched_tokens": (counted.max_step_tokens, "tokens"),
        "max_num_seqs": (counted.max_running_requests, "requests"),
    }
    if knob in most and isinstance(limit, int):
        seen, unit = most[knob]
        if not 0 < seen <= limit:
            return f"but the largest step had {seen} {unit}"
    return None


def _rows(cap: object, point: Point, info: EngineInfo) -> int | None:
    """Rows that a cap gives by arithmetic alone; None for the sparse rule, whose top-k the engine does not report."""
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
