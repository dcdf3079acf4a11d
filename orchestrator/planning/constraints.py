"""Rules that vLLM holds an engine to, as named predicates with a message and the versions they are for.

Source of each: vLLM's own check of its configuration, or the assertion or refusal of a backend; read from the releases
named in ``since`` and ``until``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.planning._versions import Release, spelled
from orchestrator.planning.shape import EngineShape

#: Block sizes that a backend takes are multiples of one of these.
BACKEND_BLOCKS: Final[dict[str, tuple[int, ...]]] = {
    "CPU_MLA": (16,),
    "CUTLASS_MLA": (128,),
    "FLASHINFER_MLA": (32, 64),
    "FLASHINFER_MLA_SPARSE": (32, 64),
    "FLASHMLA": (64,),
    "FLASHMLA_SPARSE": (64,),
    "FLASH_ATTN_MLA": (16,),
    "TOKENSPEED_MLA": (32, 64),
    "TRITON_MLA": (16,),
}
#: Backends that return no log-sum-exp, which decode context parallelism needs to join the parts.
_NO_DCP: Final = ("CPU_MLA", "FLASH_ATTN_MLA_SPARSE")
_SPECULATES_INTERLEAVED: Final = ("FLASHMLA_SPARSE", "TOKENSPEED_MLA")
_FP8: Final = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
_PACKED: Final = ("fp8_ds_mla", "nvfp4_ds_mla")


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """One rule.

    Attributes:
        name: Short and stable: records and samplers refer to it.
        holds: Whether an engine keeps the rule.
        says: The rule and the values that break it, in one line.
        since: First release that has it.
        until: First release that no longer has it; ``None``: still there in the newest one read.
    """

    name: str
    holds: Callable[[EngineShape], bool]
    says: Callable[[EngineShape], str]
    since: Release = (0, 8, 0)
    until: Release | None = None

    def applies(self, release: Release) -> bool:
        """Whether a release of vLLM has the rule."""
        return self.since <= release and (self.until is None or release < self.until)

    @property
    def versions(self) -> str:
        """The releases, spelled: ``0.12.0 and later`` or ``0.8.0 up to, not including, 0.11.0``."""
        end = " and later" if self.until is None else f" up to, not including, {spelled(self.until)}"
        return spelled(self.since) + end

    def message(self, shape: EngineShape) -> str:
        """What is wrong with an engine, in one line, with the versions."""
        return f"{self.says(shape)} (vLLM {self.versions})"


def _pcp_allows(shape: EngineShape) -> bool:
    return shape.pcp == 1 or shape.dcp in (1, shape.pcp, shape.tp * shape.pcp)


def _block_fits_backend(shape: EngineShape) -> bool:
    sizes = BACKEND_BLOCKS.get(shape.attention_backend or "")
    return sizes is None or any(shape.block_size % size == 0 for size in sizes)


def _speculates(shape: EngineShape) -> bool:
    return shape.num_speculative_tokens > 0


CONSTRAINTS: Final[tuple[Constraint, ...]] = (
    Constraint(
        name="dcp-divides-tp",
        holds=lambda s: s.pcp > 1 or s.tp % s.dcp == 0,
        says=lambda s: f"dcp must divide tp, got dcp={s.dcp}, tp={s.tp}",
        since=(0, 10, 2),
    ),
    Constraint(
        name="dcp-fits-pcp",
        holds=_pcp_allows,
        says=lambda s: f"dcp must be 1, pcp or tp*pcp when pcp > 1, got dcp={s.dcp}, pcp={s.pcp}, tp={s.tp}",
        since=(0, 12, 0),
    ),
    Constraint(
        name="interleave-divides-block",
        holds=lambda s: s.dcp == 1 or s.block_size % s.interleave == 0,
        says=lambda s: f"interleave must divide block_size when dcp > 1, got {s.interleave} and {s.block_size}",
        since=(0, 12, 0),
    ),
    Constraint(
        name="dcp-divides-workspace",
        holds=lambda s: s.dcp == 1 or s.block_size % s.interleave != 0 or s.workspace_rows() % s.dcp == 0,
        says=lambda s: f"dcp must divide the workspace rows, got dcp={s.dcp}, {s.workspace_rows()} rows",
        since=(0, 10, 2),
    ),
    Constraint(
        name="workspace-holds-pages",
        holds=lambda s: s.max_num_seqs * s.block_size <= 128 * 1024,
        says=lambda s: (
            f"max_num_seqs * block_size must be at most 131072 rows, got {s.max_num_seqs} * {s.block_size}:"
            " the workspace is not raised, an assertion stops the engine"
        ),
        until=(0, 11, 0),
    ),
    Constraint(
        name="heads-divide-tp",
        holds=lambda s: s.model.heads % s.tp == 0,
        says=lambda s: f"tp must divide the {s.model.heads} heads, got tp={s.tp}",
    ),
    Constraint(
        name="batch-covers-seqs",
        holds=lambda s: s.max_num_batched_tokens >= s.max_num_seqs,
        says=lambda s: (
            f"max_num_batched_tokens must be at least max_num_seqs, got {s.max_num_batched_tokens}, {s.max_num_seqs}"
        ),
    ),
    Constraint(
        name="batch-covers-length",
        holds=lambda s: s.enable_chunked_prefill or s.max_num_batched_tokens >= s.length,
        says=lambda s: (
            "max_num_batched_tokens must be at least max_model_len without chunked prefill,"
            f" got {s.max_num_batched_tokens}, {s.length}"
        ),
    ),
    Constraint(
        name="threshold-within-length",
        holds=lambda s: s.long_prefill_token_threshold <= s.length,
        says=lambda s: (
            "long_prefill_token_threshold must be at most max_model_len,"
            f" got {s.long_prefill_token_threshold}, {s.length}"
        ),
    ),
    Constraint(
        name="active-within-seqs",
        holds=lambda s: s.max_num_active_seqs is None or s.max_num_active_seqs <= s.max_num_seqs,
        says=lambda s: (
            f"max_num_active_seqs must be at most max_num_seqs, got {s.max_num_active_seqs}, {s.max_num_seqs}"
        ),
        since=(0, 31, 0),
    ),
    Constraint(
        name="utilisation-is-a-share",
        holds=lambda s: 0 < s.gpu_memory_utilization <= 1,
        says=lambda s: f"gpu_memory_utilization must be above 0 and at most 1, got {s.gpu_memory_utilization}",
    ),
    Constraint(
        name="block-fits-backend",
        holds=_block_fits_backend,
        says=lambda s: (
            f"block_size must be a multiple of {' or '.join(map(str, BACKEND_BLOCKS[s.attention_backend or '']))}"
            f" for {s.attention_backend}, got {s.block_size}"
        ),
    ),
    Constraint(
        name="backend-returns-lse",
        holds=lambda s: s.dcp == 1 or s.attention_backend not in _NO_DCP,
        says=lambda s: f"dcp must be 1 for {s.attention_backend}, which returns no log-sum-exp, got {s.dcp}",
        since=(0, 10, 2),
    ),
    Constraint(
        name="flashinfer-dcp-interleave",
        holds=lambda s: s.dcp == 1 or s.attention_backend != "FLASHINFER_MLA" or s.interleave == 1,
        says=lambda s: f"interleave must be 1 for FLASHINFER_MLA with dcp > 1, got {s.interleave}",
        since=(0, 12, 0),
    ),
    Constraint(
        name="speculative-interleave",
        holds=lambda s: (
            s.dcp == 1
            or s.interleave == 1
            or not _speculates(s)
            or s.attention_backend is None
            or s.attention_backend in _SPECULATES_INTERLEAVED
        ),
        says=lambda s: (
            f"interleave must be 1 with speculative decoding on {s.attention_backend}, got {s.interleave};"
            f" {' and '.join(_SPECULATES_INTERLEAVED)} allow more"
        ),
        since=(0, 12, 0),
    ),
    Constraint(
        name="packed-cache-for-sparse-dcp",
        holds=lambda s: s.dcp == 1 or s.attention_backend != "FLASHMLA_SPARSE" or s.kv_cache_dtype in _PACKED,
        says=lambda s: (
            f"kv_cache_dtype must be {' or '.join(_PACKED)} for FLASHMLA_SPARSE with dcp > 1, got {s.kv_cache_dtype}"
        ),
        since=(0, 26, 0),
    ),
    Constraint(
        name="cache-dtype-fits-backend",
        holds=lambda s: (
            not (
                (s.attention_backend == "FLASH_ATTN_MLA" and s.kv_cache_dtype in _FP8)
                or (s.attention_backend == "TOKENSPEED_MLA" and s.kv_cache_dtype not in _FP8)
                or s.kv_cache_dtype == "nvfp4"
            )
        ),
        says=lambda s: (
            f"kv_cache_dtype={s.kv_cache_dtype} does not go with {s.attention_backend or 'MLA'}:"
            " FLASH_ATTN_MLA takes no fp8, TOKENSPEED_MLA nothing else, and no MLA backend plain nvfp4"
        ),
    ),
    Constraint(
        name="quantised-queries-need-fp8",
        holds=lambda s: not s.use_prefill_query_quantization or s.kv_cache_dtype in _FP8,
        says=lambda s: f"use_prefill_query_quantization needs an fp8 kv_cache_dtype, got {s.kv_cache_dtype}",
    ),
    Constraint(
        name="all-to-all-needs-dcp",
        holds=lambda s: s.dcp_comm_backend != "a2a" or s.dcp > 1,
        says=lambda s: f"dcp_comm_backend=a2a needs dcp > 1, got {s.dcp}",
        since=(0, 18, 0),
        until=(0, 29, 0),
    ),
    Constraint(
        name="ubatches-alone",
        holds=lambda s: not s.enable_dbo or (s.dcp == 1 and s.pcp == 1 and s.pp == 1 and not _speculates(s)),
        says=lambda s: (
            "enable_dbo must be off with dcp, pcp, pp or speculative decoding,"
            f" got dcp={s.dcp}, pcp={s.pcp}, pp={s.pp}, num_speculative_tokens={s.num_speculative_tokens}"
        ),
    ),
    Constraint(
        name="sparse-factor-least",
        holds=lambda s: (s.sparse_mla_prefill_workspace_factor or 2) >= 2,
        says=lambda s: (
            f"sparse_mla_prefill_workspace_factor must be at least 2, got {s.sparse_mla_prefill_workspace_factor}"
        ),
        since=(0, 32, 0),
    ),
    Constraint(
        name="v4-without-dcp",
        holds=lambda s: not s.model.is_v4 or s.dcp == 1,
        says=lambda s: f"dcp must be 1 for {s.model.name}, got {s.dcp}",
    ),
)


def violations(shape: EngineShape) -> list[Constraint]:
    """Rules of the engine's vLLM version that it breaks."""
    return [rule for rule in CONSTRAINTS if rule.applies(shape.release) and not rule.holds(shape)]
