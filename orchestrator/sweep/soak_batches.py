"""The worst batches of one engine, from what it says is in force, and their requests."""

from __future__ import annotations

from orchestrator.engines import BlockResult, EngineInfo
from orchestrator.errors import ChunksmithError
from orchestrator.planning import AreaPlanning, SchedulerLimits, WorstBatch, worst_batches
from orchestrator.planning.models import MODELS
from orchestrator.workloads import Request, random_requests

_LIMITS = ("max_num_batched_tokens", "max_num_seqs", "kv_blocks")


def engine_batches(info: EngineInfo, normal: BlockResult) -> tuple[WorstBatch, ...]:
    """The worst batches of an engine at the point that is in force.

    Args:
        info: The engine.
        normal: A block of normal load, whose report tells the limits and whether prefills were planned by area.

    Raises:
        ChunksmithError: The engine does not say what bounds its batches.
    """
    return worst_batches(_limits(info, normal))


def batch_requests(batch: WorstBatch, seed: int, vocab_size: int) -> list[Request]:
    """Requests of random tokens with the lengths of a batch; no two share a prefix."""
    return [
        random_requests(1, input_len=prompt, output_len=output, seed=[seed, index], vocab_size=vocab_size)[0]
        for index, (prompt, output) in enumerate(batch.lengths)
    ]


def _limits(info: EngineInfo, normal: BlockResult) -> SchedulerLimits:
    """What bounds the batches of an engine, from the report that ended a block of normal load."""
    force = normal.in_force
    for name in _LIMITS:
        if getattr(force, name) is None:
            raise ChunksmithError(
                f"{info.engine_id}: a soak needs {name}, which this engine does not report; soak.rounds: 0 goes without"
            )
    assert force.max_num_batched_tokens is not None
    assert force.max_num_seqs is not None
    assert force.kv_blocks is not None
    return SchedulerLimits(
        max_num_batched_tokens=force.max_num_batched_tokens,
        # Lowered in a running engine, a step may have fewer tokens than there may be requests.
        max_num_seqs=min(force.max_num_seqs, force.max_num_batched_tokens),
        max_model_len=info.max_model_len,
        kv_blocks=force.kv_blocks,
        block_size=info.block_size * info.dcp,
        long_prefill_token_threshold=force.long_prefill_token_threshold or 0,
        area=_area_planning(info, normal),
    )


def _area_planning(info: EngineInfo, normal: BlockResult) -> AreaPlanning | None:
    """What the chunk planner goes by, if it made a plan in the block: every engine has a chunk size, few use it.

    An engine does not tell the layers of its model. All shipped models that plan by area have one window, and the
    layers of each are among those of the others.
    """
    size, tokens = normal.in_force.prefill_chunk_size, info.in_force.max_num_batched_tokens
    if normal.counters.area_plans == 0 or size is None or tokens is None:
        return None
    models = [model for model in MODELS.values() if model.is_v4]
    return AreaPlanning(
        prefill_chunk_size=size,
        max_num_batched_tokens=tokens,
        window=max(model.window for model in models),
        layers=tuple(dict.fromkeys(kind for model in models for kind, _ in model.layer_types)),
        area_cap=normal.in_force.prefill_area_limit,
    )
