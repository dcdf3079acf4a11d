"""The plugin's RPC over vLLM's ``AsyncLLM``, wherever that lives: in an engine actor, or in an API server.

Each may wait for ever when the engine core dies before it answers; the caller looks out for that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from orchestrator.vllm_plugin.protocol import (
    RPC_WORKER_REPORT,
    RPC_WORKER_RETUNE,
    SCHEDULER_KNOBS,
    UTILITY_SCHEDULER_REPORT,
    UTILITY_SCHEDULER_RETUNE,
    WORKER_KNOBS,
    SchedulerReport,
    WorkerReport,
)

_PARTS = ("model", "cache", "parallel", "scheduler", "attention", "compilation")
"""Of a VllmConfig: those that tell how the engine runs."""

_UNTOLD = frozenset({"hf_config", "static_forward_context", "static_all_moe_layers", "traced_files"})
"""Fields that hold objects, or grow while the model is compiled."""


class EngineFacts(TypedDict):
    """What a started engine says of itself; see ``orchestrator.engines.EngineInfo``."""

    version: str
    vocab_size: int
    max_model_len: int
    block_size: int
    dcp: int
    interleave: int
    index_topk: int | None
    resolved: dict[str, Any]


async def reports(engine: Any) -> tuple[list[WorkerReport], SchedulerReport]:
    """One report of each worker, and the scheduler's."""
    workers, scheduler = await asyncio.gather(
        engine.collective_rpc(RPC_WORKER_REPORT), engine.engine_core.call_utility_async(UTILITY_SCHEDULER_REPORT)
    )
    return list(workers), scheduler


async def retune(engine: Any, values: Mapping[str, int | None]) -> None:
    """Put a value of every live knob into force; None is the one at engine start."""
    scheduler = {name: values[name] for name in SCHEDULER_KNOBS}
    worker = {name: values[name] for name in WORKER_KNOBS}
    # The workers first: a workspace that does not fit fails there, and the scheduler is left alone then.
    await engine.collective_rpc(RPC_WORKER_RETUNE, args=(worker, scheduler["max_num_seqs"]))
    await engine.engine_core.call_utility_async(UTILITY_SCHEDULER_RETUNE, scheduler)


def facts(config: Any, environment: Iterable[str]) -> EngineFacts:
    """What a ``VllmConfig`` says.

    Args:
        environment: Names of variables that were set for the engine; vLLM's own are told as vLLM reads them.
    """
    import vllm

    return EngineFacts(
        version=vllm.__version__,
        vocab_size=config.model_config.get_vocab_size(),
        max_model_len=config.model_config.max_model_len,
        block_size=config.cache_config.block_size,
        dcp=config.parallel_config.decode_context_parallel_size,
        interleave=config.parallel_config.cp_kv_cache_interleave_size or 1,
        index_topk=getattr(config.model_config.hf_text_config, "index_topk", None),
        resolved=_as_json(config, environment),
    )


def _as_json(config: Any, environment: Iterable[str]) -> dict[str, Any]:
    """The parts of a VllmConfig, and variables of the environment; values that JSON does not know are written as
    text."""
    from vllm import envs

    parts = {}
    for name in (f"{part}_config" for part in _PARTS):
        part = getattr(config, name, None)
        if part is not None and dataclasses.is_dataclass(part):
            fields = [f.name for f in dataclasses.fields(part) if f.init and f.name not in _UNTOLD]
            parts[name] = {field: getattr(part, field, None) for field in fields}
    parts["additional_config"] = config.additional_config
    named = [name for name in environment if name in envs.environment_variables and "KEY" not in name]
    parts["environment"] = {name: getattr(envs, name) for name in named}
    known: dict[str, Any] = json.loads(json.dumps(parts, default=str))
    return known
