"""A stand-in for GPUs in a test: vLLM's CPU platform, whose ranks take Ray's fake GPUs.

vLLM's own CPU platform has no name for its devices in Ray (``CpuPlatform.ray_device_key`` is empty), and its Ray
executor refuses such a platform. This one is a platform plugin of vLLM, so that every process of the engine has it.
"""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):  # type: ignore[misc]
    """CPU ranks, counted by Ray as GPUs."""

    ray_device_key = "GPU"


def register() -> str:
    """For the entry point group ``vllm.platform_plugins``."""
    return f"{__name__}.{RayCpuPlatform.__name__}"
