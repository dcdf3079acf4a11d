"""One engine as the memory arithmetic and the constraints see it: the flags of a point."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from orchestrator.planning._checks import whole
from orchestrator.planning._versions import NEWEST_KNOWN, Release, release, spelled
from orchestrator.planning.chunks import PREFILL_CHUNK_SIZE
from orchestrator.planning.models import MlaModel
from orchestrator.planning.workspace import Rule, dense_workspace_rows, known_rule, rule_for_vllm, sparse_workspace_rows

_OPTIONAL_SIZES = (
    "max_model_len",
    "max_num_active_seqs",
    "sparse_mla_prefill_workspace_factor",
    "mla_workspace_rows",
    "prefill_area_limit",
)
_FROM_ZERO = (
    "num_speculative_tokens",
    "long_prefill_token_threshold",
    "max_image_tokens",
    "max_cudagraph_capture_size",
)


@dataclass(frozen=True, kw_only=True)
class EngineShape:
    """The flags of one vLLM engine, under vLLM's names where it has one.

    Attributes:
        vllm: vLLM's version.
        model: The model.
        max_model_len: Tokens; ``None`` takes the model's own.
        block_size: Tokens in a KV cache block.
        dcp: ``decode_context_parallel_size``.
        pcp: ``prefill_context_parallel_size``.
        interleave: ``cp_kv_cache_interleave_size``.
        rule: Workspace sizing rule; ``None`` takes that of the version.
        mla_workspace_rows: Cap of the workspace, in rows before alignment; ``None`` takes the rule's own. Like the next
            two, no flag of vLLM reaches it.
        prefill_chunk_size: DeepSeek-V4's class constant.
        prefill_area_limit: Rows that no chunk may exceed, below what the warm-up reserves; ``None`` leaves that.
        direct_dcp: Whether the symmetric-memory buffers of decode context parallelism are in use.
        dcp_comm_backend: ``"ag_rs"`` or ``"a2a"``.
        attention_backend: vLLM's name, or ``None`` where it chooses.
        num_lanes: Workspace lanes; 2 for a DSpark drafter on the second model runner.
        max_image_tokens: Tokens of the widest image span of a vision model, else 0.
    """

    model: MlaModel
    vllm: str = field(default_factory=lambda: spelled(NEWEST_KNOWN))
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    block_size: int = 64
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    pcp: int = 1
    interleave: int = 1
    rule: str | None = None
    mla_workspace_rows: int | None = None
    prefill_chunk_size: int = PREFILL_CHUNK_SIZE
    prefill_area_limit: int | None = None
    num_speculative_tokens: int = 0
    max_cudagraph_capture_size: int = 512
    num_ubatches: int = 1
    num_lanes: int = 1
    direct_dcp: bool = False
    dcp_comm_backend: str = "ag_rs"
    kv_cache_dtype: str = "auto"
    use_prefill_query_quantization: bool = False
    attention_backend: str | None = None
    enable_chunked_prefill: bool = True
    enable_dbo: bool = False
    long_prefill_token_threshold: int = 0
    max_num_active_seqs: int | None = None
    sparse_mla_prefill_workspace_factor: int | None = None
    gpu_memory_utilization: float = 0.92
    max_image_tokens: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type == "int":
                whole(item.name, value, least=0 if item.name in _FROM_ZERO else 1)
            elif item.name in _OPTIONAL_SIZES and value is not None:
                whole(item.name, value)
        if self.rule is not None:
            known_rule(self.rule)
        release(self.vllm)

    @property
    def release(self) -> Release:
        """vLLM's version as a tuple."""
        return release(self.vllm)

    @property
    def length(self) -> int:
        """``max_model_len`` in force."""
        return self.model.max_model_len if self.max_model_len is None else self.max_model_len

    @property
    def sizing_rule(self) -> Rule:
        """Workspace rule in force."""
        return rule_for_vllm(self.vllm) if self.rule is None else known_rule(self.rule)

    @property
    def gpus(self) -> int:
        """GPUs of the engine. Decode context parallelism reuses ranks and adds none."""
        return self.tp * self.pp * self.dp * self.pcp

    @property
    def heads_per_rank(self) -> int:
        """Attention heads of one rank."""
        return -(-self.model.heads // self.tp)

    @property
    def layers_per_rank(self) -> int:
        """Attention layers of the pipeline stage that has most."""
        return -(-self.model.attention_layers // self.pp)

    def workspace_rows(self, *, sparse: bool | None = None) -> int:
        """Rows of the MLA workspace; 0 for DeepSeek-V4, which has another.

        Args:
            sparse: Which sizing to take; ``None``: that of the model's backend. vLLM's memory profile takes the dense
                one for every model.

        Raises:
            ValueError: as :func:`dense_workspace_rows`.
        """
        if self.model.is_v4:
            return 0
        sizes: dict[str, Any] = {
            "max_model_len": self.length,
            "max_num_seqs": self.max_num_seqs,
            "block_size": self.block_size,
            "dcp": self.dcp,
            "interleave": self.interleave,
            "cap": self.mla_workspace_rows,
            "rule": self.sizing_rule,
        }
        # Before 0.26 sparse backends had no sizing of their own.
        own = self.model.is_sparse and self.release >= (0, 26, 0)
        if (own if sparse is None else sparse) and self.model.index_topk is not None:
            return sparse_workspace_rows(index_topk=self.model.index_topk, **sizes)
        return dense_workspace_rows(**sizes)
