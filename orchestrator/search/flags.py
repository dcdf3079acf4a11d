"""Where the value of a knob goes: an engine argument, a key inside one, the environment, or the load; by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LOAD_KINDS: Final = ("workload", "load")
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9_]*")

_SAME: Final = {
    "attention_config.backend": "attention_backend",
    "compilation_config.cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "compilation_config.max_cudagraph_capture_size": "max_cudagraph_capture_size",
    "dcp_kv_cache_interleave_size": "cp_kv_cache_interleave_size",
    "VLLM_DCP_Q_REPLICATE": "dcp_q_replicate",
}
"""Other names of one thing in vLLM 0.32 (``EngineArgs.create_engine_config``, ``ParallelConfig``)."""


def is_load(name: str) -> bool:
    """Whether a knob belongs to the load: ``workload``, ``load``, or a field such as ``workload.input_len``."""
    return name.partition(".")[0] in LOAD_KINDS


def is_environment(name: str) -> bool:
    """Whether a knob is an environment variable: its name is in capitals."""
    return _ENVIRONMENT.fullmatch(name) is not None


def is_nested(name: str) -> bool:
    """Whether a knob is a key inside an engine argument, such as ``compilation_config.cudagraph_mode``."""
    return "." in name and not is_load(name)


def flag_of(name: str) -> str:
    """One spelling for all names that set the same thing."""
    spelled = name if is_environment(name) else name.replace("-", "_")
    return _SAME.get(spelled, spelled)


def nested_name(name: str) -> str:
    """The key inside an engine argument that a knob sets, such as ``attention_config.backend`` for
    ``attention_backend``; the name itself where it has no other."""
    flag = flag_of(name)
    return next((other for other, one in _SAME.items() if one == flag and is_nested(other)), flag)


def same_flag(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that set the same thing; None when all differ."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(flag_of(name), name)
        if other != name:
            return other, name
    return None
