"""Methods that vLLM mixes into its worker class (``worker_extension_cls``), called by ``collective_rpc``."""

from __future__ import annotations

import sys
from typing import Any

from orchestrator.vllm_plugin import dsv4, workspace
from orchestrator.vllm_plugin.protocol import WORKER_KNOBS, WorkerReport
from orchestrator.vllm_plugin.settings import settings_of
from orchestrator.vllm_plugin.state import PLUGIN, WORKER

_KIMI_MODULE = "vllm.models.kimi_k3.nvidia.mla"
_COUNTED = "_chunksmith_counted"


class WorkerExtension:
    """Mixed into vLLM's worker. Names carry a prefix, since vLLM refuses an extension that shares one with the
    worker."""

    model_runner: Any
    vllm_config: Any

    def chunksmith_worker_retune(self, values: dict[str, int | None], max_num_seqs: int | None = None) -> None:
        """Apply live values; a knob that is not named, or None, goes to its value at engine start.

        Args:
            values: By knob of ``WORKER_KNOBS``.
            max_num_seqs: The live scheduler value, which the sizing rule reads.

        Raises:
            ValueError: An unknown knob or a value out of its range.
            RuntimeError: The plugin patched nothing in this process.
        """
        if PLUGIN.refused is not None:
            raise RuntimeError(PLUGIN.refused)
        if unknown := sorted(set(values) - set(WORKER_KNOBS)):
            raise ValueError(f"unknown worker knob {unknown[0]!r}; known: {', '.join(WORKER_KNOBS)}")
        for knob, value in values.items():
            if value is not None and value < 1:
                raise ValueError(f"{knob} must be at least 1, got {value}")
        settings = settings_of(self.vllm_config)
        # The chunk size is refused above its start value, so it comes before anything is changed.
        dsv4.set_chunk_size(values.get("prefill_chunk_size"))
        dsv4.set_area_limit(values.get("prefill_area_limit") or settings.prefill_area_limit)
        cap = values.get("mla_workspace_rows") or settings.mla_workspace_rows
        workspace.resize(self.model_runner, cap=cap, max_num_seqs=max_num_seqs)

    def chunksmith_worker_report(self) -> WorkerReport:
        """What is in force, read from the builders themselves, and the counters."""
        _count_kimi_entries()
        builders = workspace.builders_of(self.model_runner)
        settings = settings_of(self.vllm_config)
        return WorkerReport(
            refused=PLUGIN.refused,
            workspace_rows=sorted({rows for builder in builders for rows in workspace.rows_of(builder)}),
            workspace_bytes=sum(_nbytes(builder.chunked_prefill_workspace) for builder in builders) or None,
            workspace_alignment=workspace.alignment(self.vllm_config) if builders else None,
            builders=len(builders),
            kv_blocks=self.vllm_config.cache_config.num_gpu_blocks,
            cpu_chunked_prefill=settings.cpu_chunked_prefill,
            prefill_chunk_size=WORKER.start_chunk_size and dsv4.chunk_size(),
            prefill_area_limit=WORKER.area_limit,
            context_chunks=WORKER.context_chunks,
            workspace_entries=WORKER.workspace_entries,
            area_plans=WORKER.area_plans,
            area_limited=WORKER.area_limited,
        )


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _count_kimi_entries() -> None:
    """Kimi-K3 has a context path of its own, in a module that exists on NVIDIA only and is loaded with the model."""
    module = sys.modules.get(_KIMI_MODULE)
    attention = getattr(module, "MultiHeadLatentAttention", None)
    if attention is not None and not hasattr(attention, _COUNTED):
        attention._compute_prefill_context = workspace.count_entries(attention._compute_prefill_context)
        setattr(attention, _COUNTED, True)
