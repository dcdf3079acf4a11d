"""Did the knobs do anything? A figure is only kept when the engine itself says that the point was in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.engines import LIVE_KNOBS, BlockResult, Counters, EngineConfig, EngineInfo, InForce, KnobValue
from orchestrator.engines.kernel_lab import LAB_LIVE_KNOBS
from orchestrator.search import PLUGIN_KNOBS, Point, Space
from orchestrator.search.flags import flag_of, is_environment, nested_name
from orchestrator.sweep.rows import PlacedBlock
from orchestrator.vllm_plugin import DEFAULT_WORKSPACE_CAP, PluginSettings

LABEL = "knob-not-in-force"

_FIXED = "fixed"
"""The chunk order that plans nothing by area."""

EQUALS_BASELINE = "equals the baseline"
"""Detail of a point that would be compared with itself."""


def equals_baseline(point: Point, baseline: Point, base: EngineConfig) -> bool:
    """Whether a point names the baseline's own values, before any engine is there to tell.

    A knob without a value counts as what the study's engines start with, where the configuration says so, and a
    workspace cap without one as vLLM's own 64 Ki. Values that only an engine knows to be equal are left to
    ``no_effect``.
    """

    def started_with(knob: str) -> KnobValue:
        given = getattr(base.plugin, knob) if knob in PLUGIN_KNOBS else base.args.get(knob)
        return DEFAULT_WORKSPACE_CAP if given is None and knob == "mla_workspace_rows" else given

    def value(values: Point, knob: str) -> KnobValue:
        return started_with(knob) if values[knob] is None else values[knob]

    return all(value(point, knob) == value(baseline, knob) for knob in point)


def not_in_force(
    space: Space, point: Point, plugin: PluginSettings, info: EngineInfo, block: BlockResult
) -> str | None:
    """The first knob that a block, at the baseline or at a candidate, did not run with, and what was seen; None when
    all of them were in force.

    All workers and builders must agree. A workspace cap must give the rows that arithmetic says, and the path that
    uses the workspace must have been entered. An area knob must be the value that the workers report, and prefills
    must have been planned by it; in the lab's order of fixed groups, which no area limits, only the size of a group
    can have a value. A scheduler knob must be the value that the scheduler reports, and no step may have
    gone beyond it. Another engine argument, or a key inside one, must stand in vLLM's own configuration after its
    defaults, where that has such a field; a variable of the environment must be what vLLM itself read.

    Args:
        point: The live and engine-scope values that the block was meant to run with.
        plugin: Settings common to all engines of the study: what a plugin knob without a value goes back to.
    """
    if block.in_force.disagreement is not None:
        return block.in_force.disagreement
    for knob in space.knobs:
        if knob.scope == "load":
            continue
        check = _live if knob.scope == "live" or knob.name in LIVE_KNOBS else _argument
        if reason := check(knob.name, point, plugin, info, block):
            return f"{knob.name}: {reason}"
    return None


def no_effect(space: Space, candidate: PlacedBlock, baseline: PlacedBlock) -> str | None:
    """Why a candidate's block shows no effect of its point beside the baseline's block of the same prompts; None when
    it does.

    A ``long_prefill_token_threshold`` above 0 must have cut a prefill and a ``prefill_area_limit`` must have limited a
    plan. Beyond that, one knob must have made a difference: other workspace rows, or rows reserved for other prefill
    chunks; another chunk order; a step with more tokens or more requests than the lower of the two limits lets
    through; a cut; a limited plan; or an engine argument with another value in vLLM's configuration. An argument that
    stands nowhere there is taken to make one.
    """
    counted = candidate.block.result.counters
    threshold, area = (candidate.point.get(knob) for knob in ("long_prefill_token_threshold", "prefill_area_limit"))
    if threshold and counted.long_prefill_cuts == 0:
        return f"long_prefill_token_threshold: {threshold} cut no prefill of the block"
    if area is not None and counted.area_limited == 0:
        return f"prefill_area_limit: no plan of the block was split by {area}"
    seen = candidate.block.result.in_force
    if seen.workspace_rows != baseline.block.result.in_force.workspace_rows:
        return None
    if any(_has_effect(knob.name, candidate, baseline) for knob in space.knobs if knob.scope != "load"):
        return None
    return (
        f"{EQUALS_BASELINE}: {seen.workspace_rows} workspace rows, and no limit in which the two differ was reached "
        f"({counted.scheduler_steps} steps, largest {counted.max_step_tokens} tokens, "
        f"{counted.max_running_requests} requests)"
    )


def _live(knob: str, point: Point, plugin: PluginSettings, info: EngineInfo, block: BlockResult) -> str | None:
    if reason := _unused(knob, point, block):
        return reason
    start = plugin if knob in PLUGIN_KNOBS else info.in_force
    asked = point[knob] if point[knob] is not None else getattr(start, knob)
    is_rows = knob == "mla_workspace_rows"
    expected = _rows(asked, point, info) if is_rows else asked
    seen = getattr(block.in_force, "workspace_rows" if is_rows else knob)
    if expected is not None and seen != expected:
        return f"asked {'default' if asked is None else asked}, which gives {expected}; in force is {seen}"
    if reason := _exceeded(knob, expected, block.counters):
        return f"asked {asked}, {reason}"
    return None


def _argument(knob: str, point: Point, _plugin: PluginSettings, info: EngineInfo, _block: BlockResult) -> str | None:
    asked = point[knob]
    if asked is None or asked == "auto":
        return None
    for seen in _resolved(info, knob):
        if not _is_same(seen, asked):
            return f"asked {asked}; in force is {seen}"
    return None


def _is_same(seen: object, asked: KnobValue) -> bool:
    # A dtype is "torch.bfloat16" there, and a member of an enumeration may bear the name of its type.
    return seen == asked or (isinstance(asked, str) and str(seen).rpartition(".")[2] == asked.rpartition(".")[2])


def _resolved(info: EngineInfo, knob: str) -> list[object]:
    """The values of a knob in the parts of vLLM's configuration or in the environment that it read; empty when none has
    it."""
    if is_environment(knob):
        environment = info.resolved.get("environment", {})
        return [environment[knob]] if knob in environment else []
    part, _, key = nested_name(knob).partition(".")
    if key:
        value: object = info.resolved.get(part)
        for name in key.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return []
            value = value[name]
        return [value]
    parts = [part for name, part in info.resolved.items() if name.endswith("_config") and name != "additional_config"]
    name = flag_of(knob)
    return [part[name] for part in parts if name in part]


def _unused(knob: str, point: Point, block: BlockResult) -> str | None:
    counted = block.counters
    if knob == "mla_workspace_rows" and counted.workspace_entries == 0:
        return (
            "the block never entered the context path that uses the workspace "
            f"({counted.scheduler_steps} steps, largest {counted.max_step_tokens} tokens): is chunked prefill on?"
        )
    if _order(block.in_force) == _FIXED:
        if knob == "prefill_area_limit" and point[knob] is not None:
            return f"{point[knob]} limits no chunk: chunk_order is {_FIXED}"
        return None
    if knob in ("prefill_chunk_size", "prefill_area_limit") and counted.area_plans == 0:
        return "no prefill was planned by area"
    return None


_MOST: dict[str, tuple[Callable[[Counters], int], str]] = {
    "max_num_batched_tokens": (lambda counted: counted.max_step_tokens, "tokens"),
    "max_num_seqs": (lambda counted: counted.max_running_requests, "requests"),
}
"""What of a step a limit of the scheduler holds down, and its unit."""

_ACTED: dict[str, Callable[[Counters], int]] = {
    "long_prefill_token_threshold": lambda counted: counted.long_prefill_cuts,
    "prefill_chunk_size": lambda counted: counted.area_limited,
    "prefill_area_limit": lambda counted: counted.area_limited,
}
"""How often a limit decided something."""


def _exceeded(knob: str, limit: object, counted: Counters) -> str | None:
    """Whether some step of the scheduler went beyond its limit, or none was counted at all."""
    if knob in _MOST and isinstance(limit, int):
        most, unit = _MOST[knob]
        if not 0 < most(counted) <= limit:
            return f"but the largest step had {most(counted)} {unit}"
    return None


def _rows(cap: object, point: Point, info: EngineInfo) -> int:
    """Rows that a cap gives by arithmetic alone."""
    seqs = point.get("max_num_seqs") or info.in_force.max_num_seqs
    assert isinstance(seqs, int)
    return info.workspace_rows(cap=cap if isinstance(cap, int) else DEFAULT_WORKSPACE_CAP, max_num_seqs=seqs)


def _has_effect(knob: str, candidate: PlacedBlock, baseline: PlacedBlock) -> bool:
    """Whether the two blocks show that they ran with other values of a knob."""
    ours, theirs = candidate.block.result, baseline.block.result
    if knob in LAB_LIVE_KNOBS:
        return _order(ours.in_force) != _order(theirs.in_force)
    if knob not in LIVE_KNOBS:
        found = _resolved(candidate.info, knob)
        return found != _resolved(baseline.info, knob) if found else candidate.point[knob] != baseline.point[knob]
    if knob == "mla_workspace_rows":
        return False  # The rows have been compared.
    limits = [_limit(knob, force) for force in (ours.in_force, theirs.in_force)]
    if limits[0] == limits[1]:
        return False
    if knob in _MOST:
        most, _ = _MOST[knob]
        return max(most(ours.counters), most(theirs.counters)) > min(limit for limit in limits if limit is not None)
    if knob == "prefill_chunk_size" and _limit(knob, candidate.info.in_force) != _limit(knob, baseline.info.in_force):
        return True
    return _ACTED[knob](ours.counters) + _ACTED[knob](theirs.counters) > 0


def _order(force: InForce) -> str | None:
    """How the kernel lab forms its chunks; None for another engine."""
    order: str | None = getattr(force, "chunk_order", None)
    return order


def _limit(knob: str, force: InForce) -> int | None:
    limit: int | None = getattr(force, knob)
    return limit
