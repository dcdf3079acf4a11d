"""Failures in other guises: in Chinese, inside another's message, from other runtimes; lines in our own words."""

from __future__ import annotations

from typing import Any

GUISES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "a report in Chinese": (
        "bad_request_too_long",
        ['  File "/path/moon.py", line 1, in app', "用户请求超过模型上下文 处理异常"],
        {},
    ),
    "a GPU's memory in Chinese": ("gpu_oom_load", ["启动失败 显存不足"], {"phase": "start"}),
    "Chinese without an error": ("none", ["模型已加载"], {}),
    "a cause inside the message of who noticed": (
        "quantization_or_kernel_unsupported",
        [
            "RuntimeError: Worker failed with error 'MXFP4 is not supported', please check the stack trace above for "
            "the root cause"
        ],
        {},
    ),
    "a hang and a death in one line": (
        "hang_shm_broadcast",
        ["workers hang under load, an RPC timeout follows, then EngineDeadError"],
        {},
    ),
    "who noticed, and no more": (
        "engine_dead",
        ["', please check the stack trace above for the root cause", "Traceback (most recent call last):"],
        {},
    ),
    "a dump that lost its beginning": (
        "engine_dead",
        [
            "199]), num_scheduled_tokens={0-8: 12}, scheduled_spec_decode_tokens={}, num_invalid_spec_tokens=null)",
            "ERROR 11-30 12:00:00 [core.py:1] EngineCore encountered a fatal error.",
        ],
        {"phase": "serve"},
    ),
    "a full disk told as a warning of Python": (
        "disk_full",
        ["/x/file_download.py:6: UserWarning: Not enough free disk space to download the file. It has 9 MB."],
        {},
    ),
    "another warning of Python": ("none", ["/x/moon.py:6: UserWarning: Not enough moon, out of memory soon"], {}),
    "a full disk with torch in the path": (
        "disk_full",
        ["OSError: [Errno 28] No space left on device: '/home/ann/.cache/vllm/torch_compile_cache/1'"],
        {},
    ),
    "the GPU's memory in torch's newest exception": (
        "gpu_oom_runtime",
        ["torch.AcceleratorError: CUDA error: out of memory"],
        {"phase": "serve"},
    ),
    "another fault in torch's newest exception": (
        "cuda_illegal_memory_access",
        ["torch.AcceleratorError: CUDA error: moon fault"],
        {},
    ),
    "a kernel of Ascend that does not end, seen by who waits": (
        "cuda_illegal_memory_access",
        [
            "[Rank 7] HCCL watchdog thread terminated with exception:",
            "terminate called after throwing an instance of 'std::runtime_error'",
            "rtEventQueryStatus execute failed, reason=[aicore timeout]",
        ],
        {"phase": "serve"},
    ),
    "who waits on Ascend, and no more": (
        "nccl_timeout_or_error",
        [
            "[Rank 7] HCCL watchdog thread terminated with exception:",
            "terminate called after throwing an instance of 'std::runtime_error'",
        ],
        {"phase": "serve"},
    ),
    "a quantization for other GPUs, without an exception's name": (
        "quantization_or_kernel_unsupported",
        ["Float8 moon quantization is only supported on CUDA>=8.9"],
        {"phase": "start"},
    ),
    "a GPU's memory in XLA's words": (
        "gpu_oom_load",
        ["jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer"],
        {"phase": "start"},
    ),
    "a message that is too large for gRPC": ("unknown", ["grpc.RpcError: RESOURCE_EXHAUSTED: a message of 9 MB"], {}),
    "a class that has changed": (
        "version_mismatch",
        ["TypeError: MoonProcessor.__init__() got an unexpected keyword argument 'pixels'"],
        {},
    ),
    "an argument of the user's": (
        "bad_argument",
        ["TypeError: EngineArgs.__init__() got an unexpected keyword argument 'moon'"],
        {},
    ),
    "a package that pip builds misses another": (
        "build_error",
        [
            "ModuleNotFoundError: No module named 'torch'",
            "note: This error originates from a subprocess, and is likely not a problem with pip.",
        ],
        {},
    ),
    "a state dict of other shapes": (
        "model_or_tokenizer_missing",
        ["size mismatch for moon: copying a param with shape [9] from checkpoint, the shape in current model is [8]."],
        {},
    ),
    "a fault of the runtime that serves the all-reduce": (
        "custom_all_reduce_failed",
        ["RuntimeError: CUDART error: moon"],
        {},
    ),
    "the same as a warning of who does without": (
        "none",
        ["[2026-11-30 12:00:00 TP1] Setup Custom allreduce failed with CUDART error: moon. To silence this warning"],
        {},
    ),
    "figures below zero": (
        "no_available_memory_for_cache_blocks",
        ["[2026-11-30 12:00:00 TP0] max_total_tokens=8 is larger than the profiled value -9. Use the profiled value."],
        {},
    ),
    "an Ascend stream that failed": (
        "cuda_illegal_memory_access",
        ["RuntimeError: NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout(s), error code is 5"],
        {},
    ),
    "a conflict, and no error's word": (
        "port_in_use",
        ['  File "/path/moon.py", line 1, in bind', "Port conflict"],
        {},
    ),
    "a worker that got SIGKILL": ("host_oom", ["moon failed (exitcode: -9) local_rank: 0 (pid: 7)"], {}),
    "a pod without a place": (
        "ray_placement_group_infeasible",
        ["0/3 nodes are available: 3 Insufficient nvidia.com/gpu."],
        {},
    ),
    "two frameworks that register a library": (
        "none",
        [
            "E0000 00:00:1732 7 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory "
            "for plugin cuDNN when one has already been registered"
        ],
        {},
    ),
}
