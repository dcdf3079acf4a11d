"""vLLM with our patches, and as it was before once a test file is done: patches hold for the whole process."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from orchestrator.vllm_plugin import guard
from orchestrator.vllm_plugin.protocol import UTILITY_SCHEDULER_REPORT, UTILITY_SCHEDULER_RETUNE
from orchestrator.vllm_plugin.state import PLUGIN, SCHEDULER, WORKER


@pytest.fixture(scope="module")
def vllm_originals() -> Iterator[pytest.MonkeyPatch]:
    """vLLM's own symbols during the test file, whoever patched them before in this process (vLLM loads the plugin when
    its argument parser is built); afterwards every symbol of the guard's table and the plugin's state as they were."""
    with pytest.MonkeyPatch.context() as patch:
        for symbol in guard.symbols_of(guard.LAST_KNOWN):
            holder: Any = importlib.import_module(symbol.module)
            *outer, name = symbol.name.split(".")
            for part in outer:
                holder = getattr(holder, part)
            patch.setattr(holder, name, _vllms_own(vars(holder)[name]))
        engine_core = importlib.import_module("vllm.v1.engine.core").EngineCore
        for name in (UTILITY_SCHEDULER_REPORT, UTILITY_SCHEDULER_RETUNE):
            patch.setattr(engine_core, name, None, raising=False)
        for state in (PLUGIN, WORKER, SCHEDULER):
            for field in dataclasses.fields(state):
                patch.setattr(state, field.name, field.default)
        yield patch


def _vllms_own(value: Any) -> Any:
    """A symbol without our wrappers."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(_vllms_own(value.__func__))
    while "vllm_plugin" in getattr(getattr(value, "__code__", None), "co_filename", ""):
        value = value.__wrapped__
    return value


def vllm_config(
    *,
    max_model_len: int = 16_384,
    max_num_seqs: int = 4,
    block_size: int = 16,
    dcp: int = 1,
    interleave: int = 1,
    index_topk: int = 2048,
    **settings: Any,
) -> Any:
    """What the sizing rules and our settings read of a ``VllmConfig``."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=max_model_len, hf_text_config=SimpleNamespace(index_topk=index_topk)
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        cache_config=SimpleNamespace(block_size=block_size, num_gpu_blocks=100),
        parallel_config=SimpleNamespace(decode_context_parallel_size=dcp, cp_kv_cache_interleave_size=interleave),
        additional_config={"chunksmith": settings} if settings else {},
    )


def builder(rows: int, *, dcp: int = 1, manager: Any = None) -> Any:
    tensor = torch.empty((rows + (rows // dcp if dcp > 1 else 0), 576), dtype=torch.bfloat16)
    return SimpleNamespace(
        chunked_prefill_workspace=tensor,
        chunked_prefill_workspace_size=rows,
        dcp_world_size=dcp,
        dcp_manager=manager,
        _prefill_backend=object(),
    )


def runner(*builders: Any, **config: Any) -> Any:
    """A model runner with one group for each builder, and one group of a backend that has no workspace."""
    groups = [[SimpleNamespace(metadata_builders=[one])] for one in builders]
    return SimpleNamespace(
        attn_groups=[*groups, [SimpleNamespace(metadata_builders=[SimpleNamespace()])]],
        vllm_config=vllm_config(**config),
    )
