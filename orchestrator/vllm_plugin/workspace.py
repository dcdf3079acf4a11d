"""The MLA prefill workspace: its cap at engine start, and its size in a running engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.vllm_plugin.guard import installed_version, parse_release
from orchestrator.vllm_plugin.settings import DEFAULT_WORKSPACE_CAP, settings_of
from orchestrator.vllm_plugin.state import WORKER


def install() -> None:
    """Wrap the two sizing rules, the context planner (to count chunks) and the two context paths (to count entries)."""
    from vllm.model_executor.layers.attention import mla_attention, sparse_mla_attention

    dense = mla_attention.MLACommonMetadataBuilder
    sparse = sparse_mla_attention.SparseMLACommonMetadataBuilder
    for builder, is_sparse in ((dense, False), (sparse, True)):
        rule = builder.determine_chunked_prefill_workspace_size
        builder.determine_chunked_prefill_workspace_size = staticmethod(_capped(rule, is_sparse))

    counted = _count_chunks(mla_attention.build_mla_chunked_context_metadata)
    # The sparse builder imported the function by name, so that both modules hold a reference.
    mla_attention.build_mla_chunked_context_metadata = counted
    sparse_mla_attention.build_mla_chunked_context_metadata = counted
    for name in ("_compute_prefill_context", "_context_parallel_compute_prefill_context"):
        setattr(mla_attention.MLACommonBaseImpl, name, count_entries(getattr(mla_attention.MLACommonBaseImpl, name)))


def workspace_rows(vllm_config: Any, *, cap: int, sparse: bool, max_num_seqs: int | None = None) -> int:
    """Rows of the workspace under a cap, by the rule of vLLM 0.28 and later.

    Source: ``determine_chunked_prefill_workspace_size`` of the dense and the sparse builder, with ``cap`` in place of
    ``64 * 1024``; the alignment is vLLM's own function.

    Args:
        cap: Upper bound in rows before alignment, at least 1.
        sparse: Whether the builder is the sparse one, whose size is also bounded by ``max_num_seqs * index_topk``.
        max_num_seqs: In place of the configured value, when a live knob lowered it.
    """
    from vllm.model_executor.layers.attention.mla_attention import align_mla_chunked_context_workspace_size

    model, block = vllm_config.model_config, vllm_config.cache_config.block_size
    seqs = max_num_seqs or vllm_config.scheduler_config.max_num_seqs
    rows = min(max(8 * model.max_model_len, 4 * seqs * block), cap)
    if not sparse:
        return int(align_mla_chunked_context_workspace_size(vllm_config, rows))
    rows = max(min(rows, seqs * _index_topk(model)), block)
    if vllm_config.parallel_config.decode_context_parallel_size > 1:
        return int(align_mla_chunked_context_workspace_size(vllm_config, rows))
    return int(rows)


def alignment(vllm_config: Any) -> int:
    """The step in rows to which vLLM rounds a dense workspace: its own function asked for a single row."""
    from vllm.model_executor.layers.attention.mla_attention import align_mla_chunked_context_workspace_size

    return int(align_mla_chunked_context_workspace_size(vllm_config, 1))


def builders_of(model_runner: Any) -> list[Any]:
    """Every metadata builder of a model runner that owns an MLA prefill workspace (one a KV group and ubatch)."""
    return list(_mla_builders(model_runner))


def rows_of(builder: Any) -> tuple[int, int]:
    """Rows that a builder lets a plan use, and rows that its tensor has room for (beside DCP's own)."""
    ranks, tensor_rows = builder.dcp_world_size, builder.chunked_prefill_workspace.shape[0]
    return builder.chunked_prefill_workspace_size, tensor_rows * ranks // (ranks + 1) if ranks > 1 else tensor_rows


def resize(model_runner: Any, *, cap: int | None, max_num_seqs: int | None) -> int | None:
    """Give every MLA builder a workspace of the size that the cap asks for; return the rows, None without MLA builders.

    The new tensor has the dtype, the width and the device of the old one. Requests in flight keep the tensor that
    their step was planned with, so the call is safe between two steps, which is when vLLM serves an RPC.

    Args:
        cap: Cap in rows; None for vLLM's own 64 Ki.
        max_num_seqs: The live value, None for the configured one.

    Raises:
        torch.OutOfMemoryError: The new tensor does not fit; the old size is in force again.
    """
    rows: int | None = None
    for builder in builders_of(model_runner):
        rows = workspace_rows(
            model_runner.vllm_config,
            cap=DEFAULT_WORKSPACE_CAP if cap is None else cap,
            sparse=is_sparse(builder),
            max_num_seqs=max_num_seqs,
        )
        if rows != builder.chunked_prefill_workspace_size:
            _reallocate(builder, rows)
    return rows


def is_sparse(builder: Any) -> bool:
    """Whether a builder sizes its workspace by the sparse rule."""
    from vllm.model_executor.layers.attention.sparse_mla_attention import SparseMLACommonMetadataBuilder

    return isinstance(builder, SparseMLACommonMetadataBuilder)


def count_entries(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that computes attention over the cached context, so that each call is counted."""

    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        WORKER.workspace_entries += 1
        return method(*args, **kwargs)

    return counted


def _capped(rule: Callable[[Any], int], sparse: bool) -> Callable[[Any], int]:
    @functools.wraps(rule)
    def determine_chunked_prefill_workspace_size(vllm_config: Any) -> int:
        cap = settings_of(vllm_config).mla_workspace_rows
        return rule(vllm_config) if cap is None else workspace_rows(vllm_config, cap=cap, sparse=sparse)

    return determine_chunked_prefill_workspace_size


def _count_chunks(planner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(planner)
    def build_mla_chunked_context_metadata(**kwargs: Any) -> Any:
        metadata = planner(**kwargs)
        if metadata is not None:
            WORKER.context_chunks += len(metadata.chunks)
        return metadata

    return build_mla_chunked_context_metadata


def _mla_builders(model_runner: Any) -> Iterator[Any]:
    for groups in model_runner.attn_groups:
        for group in groups:
            for builder in group.metadata_builders:
                if hasattr(builder, "chunked_prefill_workspace_size"):
                    yield builder


def _reallocate(builder: Any, rows: int) -> None:
    import torch

    old, old_rows = builder.chunked_prefill_workspace, builder.chunked_prefill_workspace_size
    width, dtype, device = old.shape[1], old.dtype, old.device
    # The old tensor is let go first: on a full GPU the two would not fit side by side.
    del old
    builder.chunked_prefill_workspace = None
    try:
        tensor = torch.empty((_tensor_rows(builder, rows), width), dtype=dtype, device=device)
    except torch.OutOfMemoryError:
        _bind(builder, torch.empty((_tensor_rows(builder, old_rows), width), dtype=dtype, device=device), old_rows)
        raise
    _bind(builder, tensor, rows)


def _bind(builder: Any, tensor: Any, rows: int) -> None:
    builder.chunked_prefill_workspace = tensor
    builder.chunked_prefill_workspace_size = rows
    # Under DCP the collective that fills the workspace is set up for its shape, as in the builder's constructor.
    if (manager := getattr(builder, "dcp_manager", None)) is not None and builder._prefill_backend is not None:
        manager.init_kv_gather(tensor, rows)


def _tensor_rows(builder: Any, rows: int) -> int:
    """DCP gathers each rank's shard beside the merged rows: one ``1/dcp`` more."""
    ranks = builder.dcp_world_size
    return rows + rows // ranks if ranks > 1 else rows


def _index_topk(model_config: Any) -> int:
    """The rule reads ``hf_config`` up to vLLM 0.29 and ``hf_text_config`` from 0.30."""
    release = parse_release(installed_version() or "")
    source = model_config.hf_config if release is not None and release < (0, 30) else model_config.hf_text_config
    return int(source.index_topk)
