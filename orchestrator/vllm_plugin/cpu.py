"""Chunked prefill for MLA on the CPU backend without AMX, where vLLM forces it off."""

from __future__ import annotations

import functools
from typing import Any

from orchestrator.vllm_plugin.settings import settings_of


def install() -> None:
    """Wrap the platform's last word on the config: put back the three values that it forces, when the setting asks
    for it."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    @functools.wraps(original)
    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        keep = settings_of(vllm_config).cpu_chunked_prefill
        scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
        asked = scheduler.enable_chunked_prefill, cache.enable_prefix_caching, scheduler.max_num_batched_tokens
        original(cls, vllm_config)
        if keep:
            scheduler.enable_chunked_prefill, cache.enable_prefix_caching, scheduler.max_num_batched_tokens = asked

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
