"""Live scheduler knobs, in the process of vLLM's engine core.

The engine core looks an utility call up by name on itself, so the two methods that are set on ``EngineCore`` here
can be called through ``AsyncMPClient.call_utility_async``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.vllm_plugin.protocol import (
    SCHEDULER_KNOBS,
    UTILITY_SCHEDULER_REPORT,
    UTILITY_SCHEDULER_RETUNE,
    SchedulerReport,
)
from orchestrator.vllm_plugin.state import PLUGIN, SCHEDULER
from orchestrator.vllm_plugin.steps import STEPS

_START_VALUES = "_chunksmith_start_values"


@dataclass(frozen=True)
class StartValues:
    """Scheduler values at engine start: what the buffers were sized for, hence the upper bounds."""

    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int


def install() -> None:
    """Count the scheduler's steps, and give the engine core its two utility methods."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore

    Scheduler.schedule = _counted(Scheduler.schedule)
    setattr(EngineCore, UTILITY_SCHEDULER_REPORT, _report)
    setattr(EngineCore, UTILITY_SCHEDULER_RETUNE, _retune)


def retune(scheduler: Any, values: Mapping[str, int | None]) -> None:
    """Set the knobs of a scheduler. A knob that is not named, or None, goes to its start value.

    ``max_num_batched_tokens`` (tokens of one step) and ``max_num_seqs`` may lie between 1 and the start value,
    because the model runner's buffers have that size; ``long_prefill_token_threshold`` is 0 (off) or more.

    Raises:
        ValueError: An unknown knob or a value out of its range; nothing is changed then.
    """
    start = _start_values(scheduler)
    if unknown := sorted(set(values) - set(SCHEDULER_KNOBS)):
        raise ValueError(f"unknown scheduler knob {unknown[0]!r}; known: {', '.join(SCHEDULER_KNOBS)}")
    tokens = _within(values, "max_num_batched_tokens", 1, start.max_num_batched_tokens)
    seqs = _within(values, "max_num_seqs", 1, start.max_num_seqs)
    threshold = values.get("long_prefill_token_threshold")
    if threshold is not None and threshold < 0:
        raise ValueError(f"long_prefill_token_threshold must not be negative, got {threshold}")

    scheduler.max_num_scheduled_tokens = tokens
    scheduler.max_num_running_reqs = seqs
    if hasattr(scheduler, "max_num_active_reqs"):  # vLLM 0.31 and later
        configured = scheduler.scheduler_config.max_num_active_seqs
        scheduler.max_num_active_reqs = seqs if configured is None else min(seqs, configured)
    scheduler.scheduler_config.long_prefill_token_threshold = (
        start.long_prefill_token_threshold if threshold is None else threshold
    )


def report(scheduler: Any) -> SchedulerReport:
    """What is in force, and the counters; the two maxima start again at 0."""
    result = SchedulerReport(
        refused=PLUGIN.refused,
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens,
        max_num_seqs=scheduler.max_num_running_reqs,
        long_prefill_token_threshold=scheduler.scheduler_config.long_prefill_token_threshold,
        steps=SCHEDULER.steps,
        max_step_tokens=SCHEDULER.max_step_tokens,
        max_running_requests=SCHEDULER.max_running_requests,
        long_prefill_cuts=SCHEDULER.long_prefill_cuts,
    )
    SCHEDULER.max_step_tokens = SCHEDULER.max_running_requests = 0
    return result


def _retune(engine_core: Any, values: dict[str, int | None]) -> None:
    retune(engine_core.scheduler, values)


def _report(engine_core: Any) -> SchedulerReport:
    return report(engine_core.scheduler)


def _within(values: Mapping[str, int | None], knob: str, low: int, high: int) -> int:
    value = values.get(knob)
    if value is None:
        return high
    if not low <= value <= high:
        raise ValueError(f"{knob} must lie between {low} and {high}, the value at engine start; got {value}")
    return value


def _start_values(scheduler: Any) -> StartValues:
    start = getattr(scheduler, _START_VALUES, None)
    if start is None:
        start = StartValues(
            scheduler.max_num_scheduled_tokens,
            scheduler.max_num_running_reqs,
            scheduler.scheduler_config.long_prefill_token_threshold,
        )
        setattr(scheduler, _START_VALUES, start)
    return start


def _counted(schedule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(schedule)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(self, *args, **kwargs)
        if output.total_num_scheduled_tokens > 0:
            SCHEDULER.steps += 1
            STEPS.count()
            SCHEDULER.max_step_tokens = max(SCHEDULER.max_step_tokens, output.total_num_scheduled_tokens)
            SCHEDULER.max_running_requests = max(SCHEDULER.max_running_requests, len(self.running))
            SCHEDULER.long_prefill_cuts += _cuts(self, output.num_scheduled_tokens)
        return output

    return counted


def _cuts(scheduler: Any, granted: Mapping[str, int]) -> int:
    """How many prefills of a step got exactly the threshold although more of the prompt and of the budget was left.

    vLLM (0.32) leaves the threshold out when only one request is there, so that the value alone says nothing. The
    order of ``granted`` is the order of scheduling; ``num_computed_tokens`` counts the step itself by now.
    """
    threshold, budget = scheduler.scheduler_config.long_prefill_token_threshold, scheduler.max_num_scheduled_tokens
    if threshold == 0:
        return 0
    cuts = 0
    for request_id, tokens in granted.items():
        if tokens == threshold < budget:
            request = scheduler.requests[request_id]
            cuts += request.num_computed_tokens < request.num_prompt_tokens
        budget -= tokens
    return cuts
