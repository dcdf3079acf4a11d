"""Arguments of the kernel lab: the shape of its layers and its limits. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.errors import unknown_name
from orchestrator.planning import LAUNCH_ROWS, LAYER_TYPES, LayerType, rule_for_vllm

DENSE: Final = "dense"
SPARSE: Final = "sparse"

LAYER_KINDS: Final = (DENSE, SPARSE, *LAYER_TYPES)
"""Dense MLA, MLA with the top-k mask of an indexer, and the layer types of DeepSeek-V4 and V4.1."""

V4_BLOCK_SIZE: Final = 256
MLA_BLOCK_SIZE: Final = 64

Size = Annotated[int, Field(ge=1)]
Order = Literal["batch", "width", "optimal", "fixed"]
CHUNK_ORDERS: Final[tuple[Order, ...]] = get_args(Order)
"""Values of the knob ``chunk_order``: vLLM's batch order, by width, the cheapest that is found (see
``orchestrator.planning``), or the fixed groups of vLLM 0.20 to 0.23."""


class LabArgs(BaseModel):
    """Fields of ``EngineConfig.args``. Names that vLLM has mean the same here.

    Attributes:
        layers: Number of layers of each kind, in the order in which they run. ``dense`` and ``sparse`` share one
            workspace of context rows; ``swaonly``, ``c1a``, ``c2a``, ``c4a`` and ``c128a`` share the gather workspace
            of DeepSeek-V4.
        heads: Attention heads of every layer.
        kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim: Of dense and sparse layers.
        head_dim: Elements of a DeepSeek-V4 row.
        index_topk: Rows that a query selects in sparse, ``c1a``, ``c2a`` and ``c4a`` layers.
        block_size: Tokens in a block, of which R ranks hold one each for R times as many tokens; None for 256 with
            DeepSeek-V4 layers and 64 without.
        num_kv_blocks: Blocks that all requests share, on each rank; None for room for ``max_num_seqs`` of the largest
            length. A request waits until its whole length fits, so that none is preempted.
        dtype: What caches hold and products take; ``auto`` is the one with the faster product.
        kv_cache_dtype: ``auto`` for ``dtype``, ``fp8_ds_mla`` for the packed record of DeepSeek-V4's caches.
        decode_context_parallel_size: Ranks R that share the context of every request and the heads, each a process of
            its own; 1 for none. Not with DeepSeek-V4 layers, which vLLM does not spread either.
        cp_kv_cache_interleave_size: Consecutive tokens that one rank keeps; divides ``block_size``.
        chunk_order: How prefill chunks of DeepSeek-V4 layers are formed; also a live knob.
        launch_rows: What one more chunk costs the order ``optimal``, in rows.
        threads: Threads of one operation.
        cores: Cores that they are pinned to; None leaves that to the scheduler of the machine.
        vllm: Version whose sizing and planning rules hold.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    layers: Annotated[dict[str, Size], Field(min_length=1)]
    heads: Size = 16
    kv_lora_rank: Size = 512
    qk_rope_head_dim: Size = 64
    qk_nope_head_dim: Size = 128
    v_head_dim: Size = 128
    head_dim: Size = 512
    window: Size = 128
    index_topk: Size = 512
    max_model_len: Size = 16_384
    max_num_batched_tokens: Size = 2_048
    max_num_seqs: Size = 16
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    block_size: Size | None = None
    num_kv_blocks: Size | None = None
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    kv_cache_dtype: Literal["auto", "fp8_ds_mla"] = "auto"
    decode_context_parallel_size: Size = 1
    cp_kv_cache_interleave_size: Size = 1
    chunk_order: Order = "batch"
    launch_rows: Annotated[int, Field(ge=0)] = LAUNCH_ROWS
    vocab_size: Annotated[int, Field(ge=2)] = 1_024
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Size = 1
    cores: list[Annotated[int, Field(ge=0)]] | None = None
    device: str = "cpu"
    vllm: str = "0.32.0"

    @model_validator(mode="after")
    def _fit_together(self) -> LabArgs:
        for kind in self.layers:
            if kind not in LAYER_KINDS:
                raise ValueError(str(unknown_name("kind of layer", kind, LAYER_KINDS)))
        if DENSE in self.layers and SPARSE in self.layers:
            raise ValueError("layers cannot be dense and sparse in one engine: their workspaces differ in size")
        for layer in self.v4_kinds:
            if self.tokens_per_block % layer.compress_ratio:
                raise ValueError(
                    f"block_size must be a multiple of {layer.compress_ratio} for {layer.name} layers, "
                    f"got {self.tokens_per_block}"
                )
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise ValueError(
                f"max_num_seqs must be at most max_num_batched_tokens {self.max_num_batched_tokens}, "
                f"got {self.max_num_seqs}"
            )
        if self.kv_cache_dtype != "auto" and self.mla_layers:
            raise ValueError(f"kv_cache_dtype must be auto with {self.mla_kind} layers, got {self.kv_cache_dtype}")
        rule_for_vllm(self.vllm)
        self._check_ranks()
        return self

    def _check_ranks(self) -> None:
        """The rules of vLLM for decode context parallelism, with as many tensor parallel ranks."""
        ranks, run = self.decode_context_parallel_size, self.cp_kv_cache_interleave_size
        if ranks == 1:
            return
        if self.v4_kinds:
            raise ValueError(f"decode_context_parallel_size must be 1 with {self.v4_kinds[0].name} layers, got {ranks}")
        if self.heads % ranks:
            raise ValueError(f"decode_context_parallel_size must divide heads {self.heads}, got {ranks}")
        if self.tokens_per_block % run:
            raise ValueError(f"cp_kv_cache_interleave_size must divide block_size {self.tokens_per_block}, got {run}")
        if rule_for_vllm(self.vllm) in ("0.8", "0.11"):
            raise ValueError(
                "decode_context_parallel_size above 1 needs vllm 0.28.0 or later, whose chunks begin with a turn of "
                f"the ranks, got {self.vllm}"
            )

    @property
    def v4_kinds(self) -> list[LayerType]:
        """Layer types of DeepSeek-V4 that there are."""
        return [LAYER_TYPES[kind] for kind in self.layers if kind in LAYER_TYPES]

    @property
    def mla_kind(self) -> str | None:
        """``dense``, ``sparse`` or None."""
        return next((kind for kind in (DENSE, SPARSE) if kind in self.layers), None)

    @property
    def mla_layers(self) -> int:
        """Layers whose context goes through the MLA workspace."""
        return self.layers.get(DENSE, 0) + self.layers.get(SPARSE, 0)

    @property
    def tokens_per_block(self) -> int:
        """``block_size`` in force."""
        if self.block_size is not None:
            return self.block_size
        return V4_BLOCK_SIZE if any(kind in LAYER_TYPES for kind in self.layers) else MLA_BLOCK_SIZE

    @property
    def blocks(self) -> int:
        """``num_kv_blocks`` in force."""
        if self.num_kv_blocks is not None:
            return self.num_kv_blocks
        tokens = self.tokens_per_block * self.decode_context_parallel_size
        return self.max_num_seqs * -(-self.max_model_len // tokens)


def lab_args(given: Mapping[str, Any]) -> LabArgs:
    """Check the arguments of an engine.

    Raises:
        LabError: ``lab-shape``, one line on the first mistake.
    """
    for name in given:
        if name not in LabArgs.model_fields:
            raise LabError("lab-shape", str(unknown_name("argument of the kernel lab", name, LabArgs.model_fields)))
    try:
        return LabArgs.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        given_text = f", got {first['input']!r}" if place and first["type"] != "missing" else ""
        raise LabError("lab-shape", f"{place}: {message}{given_text}" if place else message) from error
