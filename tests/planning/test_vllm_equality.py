"""Our planners against the functions of the installed vLLM, on random cases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from orchestrator.planning import (
    LAYER_TYPES,
    align_workspace,
    area_limit,
    dense_workspace_rows,
    plan_context_chunks,
    plan_prefill_chunks,
    sparse_workspace_rows,
    workspace_alignment,
)

# Imported by the tests and not while they are collected, which every worker of pytest-xdist does.
mla = partial(pytest.importorskip, "vllm.model_executor.layers.attention.mla_attention")
sparse_mla = partial(pytest.importorskip, "vllm.model_executor.layers.attention.sparse_mla_attention")
swa = partial(pytest.importorskip, "vllm.v1.attention.backends.mla.sparse_swa")

# Another file may have built vLLM's argument parser in this process, which loads our plugin.
pytestmark = pytest.mark.usefixtures("vllm_originals")

CASES, SOAK_CASES = 500, 100_000


def block_and_run(data: Any) -> tuple[int, int]:
    """A block size and an interleave that divides it."""
    run = data.draw(st.sampled_from([1, 2, 3, 8, 16, 64, 128]))
    return run * data.draw(st.integers(1, 64)), run


def vllm_config(**values: int) -> SimpleNamespace:
    """What the sizing functions of vLLM read of a configuration."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=values["max_model_len"], hf_text_config=SimpleNamespace(index_topk=values["index_topk"])
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=values["max_num_seqs"]),
        cache_config=SimpleNamespace(block_size=values["block_size"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=values["dcp"], cp_kv_cache_interleave_size=values["interleave"]
        ),
    )


def check_workspace(data: Any) -> None:
    block, run = block_and_run(data)
    dcp = data.draw(st.integers(1, 16))
    sizes = {"block_size": block, "dcp": dcp, "interleave": run}
    lengths = {
        "max_model_len": data.draw(st.one_of(st.integers(1, 20_000), st.integers(1, 2_000_000))),
        "max_num_seqs": data.draw(st.integers(1, 4096)),
    }
    topk = data.draw(st.integers(1, 4096))
    config = vllm_config(**sizes, **lengths, index_topk=topk)
    rows = data.draw(st.integers(1, 3_000_000))
    assert align_workspace(rows, **sizes) == mla().align_mla_chunked_context_workspace_size(config, rows)
    dense = mla().MLACommonMetadataBuilder.determine_chunked_prefill_workspace_size(config)
    assert dense_workspace_rows(**sizes, **lengths) == dense
    sparse = sparse_mla().SparseMLACommonMetadataBuilder.determine_chunked_prefill_workspace_size(config)
    assert sparse_workspace_rows(**sizes, **lengths, index_topk=topk) == sparse


def check_prefill(data: Any) -> None:
    longest = data.draw(st.sampled_from([300, 20_000, 1 << 20]))
    seq = data.draw(st.lists(st.integers(1, longest), max_size=24))
    asked = data.draw(st.lists(st.integers(1, 8192), min_size=len(seq), max_size=len(seq)))
    query = [min(pair) for pair in zip(seq, asked, strict=True)]
    kind = data.draw(st.sampled_from(list(LAYER_TYPES.values())))
    # The layer's own meaning of `None`, or what the layer says.
    compressed = data.draw(st.sampled_from([None, kind.has_compressed]))
    sizes: dict[str, Any] = {
        "max_model_len": data.draw(st.integers(1, longest)),
        "window": data.draw(st.integers(1, 512)),
        "max_num_batched_tokens": data.draw(st.integers(1, 16_384)),
    }
    size = data.draw(st.integers(1, 8))
    metadata = swa().DeepseekSparseSWAMetadata(
        block_table=torch.empty(0),
        slot_mapping=torch.empty(0),
        block_size=64,
        num_prefills=len(seq),
        prefill_seq_lens_cpu=torch.tensor(seq, dtype=torch.int32),
        prefill_query_lens_cpu=torch.tensor(query, dtype=torch.int32),
        prefill_window_size=sizes["window"],
        prefill_max_model_len=sizes["max_model_len"],
        prefill_max_num_batched_tokens=sizes["max_num_batched_tokens"],
    )
    theirs = metadata.get_prefill_chunk_plan(kind.compress_ratio, size, compressed)
    layer = {"compress_ratio": kind.compress_ratio, "has_compressed": compressed}
    limit = area_limit(prefill_chunk_size=size, **layer, **sizes)
    ours = plan_prefill_chunks(seq, query, area_limit=limit, window=sizes["window"], **layer)
    assert ours == theirs
    both = metadata.prefill_seq_lens_cpu.numpy(), metadata.prefill_query_lens_cpu.numpy()
    assert plan_prefill_chunks(*both, area_limit=limit, window=sizes["window"], **layer) == theirs


def check_context(data: Any) -> None:
    block, run = block_and_run(data)
    dcp = data.draw(st.sampled_from([1, 1, 2, 3, 8]))
    aligned = data.draw(st.booleans())
    step = workspace_alignment(block_size=block if aligned else run, dcp=dcp, interleave=run) if dcp > 1 else block
    rows = step * data.draw(st.integers(1, 20)) + data.draw(st.integers(0, step - 1))
    # Enough pieces to be of use, few enough that vLLM's index tensors stay small.
    longest = max(1, min(6 * rows, 6000))
    contexts = data.draw(st.lists(st.one_of(st.just(0), st.integers(0, longest)), max_size=10))
    ours = plan_context_chunks(
        contexts, workspace_rows=rows, block_size=block, dcp=dcp, interleave=run, align_to_block=aligned
    )
    theirs = mla().build_mla_chunked_context_metadata(
        context_lens_cpu=torch.tensor(contexts, dtype=torch.int32),
        prefill_query_start_loc_cpu=torch.arange(len(contexts) + 1, dtype=torch.int32),
        chunked_prefill_workspace=torch.empty(0),
        chunked_prefill_workspace_size=rows,
        block_size=block,
        align_chunk_to_block=aligned,
        device=torch.device("cpu"),
        dcp_world_size=dcp,
        dcp_local_block_size=run,
        dcp_virtual_block_size=run * dcp,
    )
    if theirs is None:
        assert len(ours) == 0
        return
    assert len(ours) == len(theirs.chunks)
    for mine, chunk in zip(ours, theirs.chunks, strict=True):
        starts = [-(-start // (run * dcp)) * run for start in mine.starts] if dcp > 1 else mine.starts
        assert slice(mine.request_start, mine.request_end) == chunk.request_slice
        assert starts == chunk.starts.tolist()
        assert mine.lengths == chunk.seq_lens.tolist()
        assert mine.rows == chunk.num_local_context_tokens
        assert mine.is_continuation == chunk.is_continuation


def check_packing(data: Any) -> None:
    """The packing alone, on contexts too long for the index tensors of the whole builder."""
    block, run = block_and_run(data)
    dcp = data.draw(st.sampled_from([1, 2, 8]))
    step = workspace_alignment(block_size=block, dcp=dcp, interleave=run)
    rows = step * data.draw(st.integers(1, 40))
    contexts = data.draw(st.lists(st.one_of(st.just(0), st.integers(0, 50 * rows)), max_size=8))

    def padded(tokens: int) -> int:
        return tokens if dcp == 1 else -(-tokens // (run * dcp)) * run

    budget = rows // dcp
    theirs = mla().plan_mla_context_chunks(contexts, budget, rows, step, padded)
    ours = plan_context_chunks(contexts, workspace_rows=rows, block_size=block, dcp=dcp, interleave=run)
    assert [(c.request_start, c.request_end, c.starts, c.lengths, c.is_continuation) for c in ours] == [
        (c.request_start, c.request_end, c.starts, c.seq_lens, c.is_continuation) for c in theirs
    ]


CHECKS = [check_workspace, check_prefill, check_context, check_packing]
_QUICK = {"suppress_health_check": list(HealthCheck), "phases": (Phase.explicit, Phase.generate, Phase.shrink)}


@pytest.mark.parametrize("check", CHECKS)
def test_equals_vllm(check: Callable[[Any], None]) -> None:
    settings(max_examples=CASES, **_QUICK)(given(st.data())(check))()  # type: ignore[arg-type]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("check", CHECKS)
def test_equals_vllm_for_long(check: Callable[[Any], None]) -> None:
    settings(max_examples=SOAK_CASES, database=None, **_QUICK)(given(st.data())(check))()  # type: ignore[arg-type]
