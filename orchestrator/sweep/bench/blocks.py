"""Serve one block of a benchmark and say what it is worth."""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestrator.engines import BlockResult, RequestTimeline, StopRule
from orchestrator.measurement import (
    BlockOutcome,
    MeasuredBlock,
    block_metrics,
    dispatch_slip,
    invalid_reason,
)
from orchestrator.sweep.bench.plan import BenchPlan
from orchestrator.sweep.bench.targets import BenchTarget, ServeFailure
from orchestrator.sweep.serving import seed_of
from orchestrator.workloads import ArrivalKind, Schedule


def serve_block(
    target: BenchTarget,
    plan: BenchPlan,
    load: ArrivalKind,
    number: int,
    *,
    dropped: bool = False,
    requests: int | None = None,
    stop: StopRule | None = None,
) -> tuple[MeasuredBlock, ServeFailure | None]:
    """Block ``number``, with prompts of its own, and the failure of the target that ended it, if one did.

    Its outcome is

    * ``failed`` when the target died, or no request ended well;
    * ``stopped`` by the rule;
    * ``invalid`` when the load generator was late, or fresh prompts were found in the prefix cache;
    * ``complete`` else, also with some requests that failed: they are counted, and not averaged in.

    Only a complete block counts; all others are marked as dropped.

    Args:
        dropped: A warm-up, or a probe of a search for a rate.
        requests: In place of the plan's number.
    """
    seed = seed_of(plan.seed, "bench", number)
    drawn = plan.draw(seed, vocab_size=target.vocab_size, requests=requests)
    schedule = load.schedule(drawn, [seed])
    failure: ServeFailure | None = None
    retune_s = 0.0
    try:
        retune_s, result = target.serve(drawn, schedule, stop=stop)
    except ServeFailure as error:
        failure, result = error, error.result
        outcome: BlockOutcome = "failed"
        why: str | None = f"{error.label}: {error.detail}"
    else:
        outcome, why = _judged(plan, schedule, result, was_empty=target.empties_cache)
    block = MeasuredBlock(
        role="baseline",
        pair=number,
        dropped=dropped or outcome != "complete",
        seed=seed,
        retune_s=retune_s,
        result=result,
        metrics=block_metrics(result.requests, result.duration_s, slo=plan.slo, gpus=plan.gpus),
        load=json.dumps(load.model_dump(), sort_keys=True),
        slip=dispatch_slip(result.requests, is_closed=schedule.is_closed),
        outcome=outcome,
        failure=why,
    )
    return block, failure


def _judged(
    plan: BenchPlan, schedule: Schedule, result: BlockResult, *, was_empty: bool
) -> tuple[BlockOutcome, str | None]:
    requests = result.requests
    if result.stopped is not None:
        return "stopped", result.stopped
    if all(request.error is not None for request in requests):
        return "failed", f"request-failed: all {len(requests)} requests failed, the first with: {requests[0].error}"
    if reason := _cache_hit(plan, requests, was_empty=was_empty):
        return "invalid", f"prefix-cache-hit: {reason}"
    slip = dispatch_slip(requests, is_closed=schedule.is_closed)
    if late := invalid_reason(requests, slip, slo_s=plan.slo.strictest_s if plan.slo else None):
        return "invalid", f"late-load-generator: {late}"
    return "complete", None


def _cache_hit(plan: BenchPlan, requests: Sequence[RequestTimeline], *, was_empty: bool) -> str | None:
    """Prompts that should not have been in the prefix cache; None if there are none."""
    if plan.wants_hits:
        first = min(requests, key=lambda one: one.send_s)
        found = first.cached_tokens if was_empty else 0
        return f"{found} prompt tokens of the first request, after the cache was emptied" if found else None
    found = sum(request.cached_tokens for request in requests)
    return f"{found} prompt tokens (blocks.prefix_cache_hits of a spec allows them)" if found else None
