"""The class of an exception that no wording tells, by the place that raised it."""

from __future__ import annotations

FRAMES = (
    ("vllm/model_executor/layers/quantization/", "quantization_or_kernel_unsupported"),
    ("vllm/model_executor/kernels/", "quantization_or_kernel_unsupported"),
    ("vllm/_custom_ops.py", "quantization_or_kernel_unsupported"),
    ("vllm/v1/attention/", "unsupported_backend_or_dcp"),
    ("vllm/attention/", "unsupported_backend_or_dcp"),
    ("vllm/v1/worker/cp_utils.py", "unsupported_backend_or_dcp"),
    ("vllm/platforms/", "unsupported_backend_or_dcp"),
    ("vllm/config/", "invalid_config"),
    ("vllm/config.py", "invalid_config"),
    ("vllm/engine/arg_utils.py", "invalid_config"),
    ("vllm/distributed/device_communicators/shm_broadcast.py", "hang_shm_broadcast"),
    ("vllm/distributed/device_communicators/pynccl", "nccl_timeout_or_error"),
    ("raise_if_cache_size_invalid", "no_available_memory_for_cache_blocks"),
    ("check_enough_kv_cache_memory", "no_available_memory_for_cache_blocks"),
    ("capture_model", "cudagraph_capture_failed"),
    ("vllm/compilation/backends.py", "triton_or_compile_failure"),
    ("vllm/compilation/compiler_interface.py", "triton_or_compile_failure"),
    ("vllm/model_executor/model_loader/", "model_or_tokenizer_missing"),
    ("vllm/transformers_utils/", "model_or_tokenizer_missing"),
    ("vllm/tokenizers/", "model_or_tokenizer_missing"),
    ("transformers/models/auto/configuration_auto.py", "version_mismatch"),
    ("vllm/lora/", "invalid_config"),
    ("torch/_inductor/", "triton_or_compile_failure"),
    ("torch/_dynamo/", "triton_or_compile_failure"),
    ("triton/", "triton_or_compile_failure"),
    ("flashinfer/jit/", "triton_or_compile_failure"),
    ("deep_gemm/jit", "triton_or_compile_failure"),
    ("parse_args", "bad_argument"),
    ("ray/util/placement_group.py", "ray_placement_group_infeasible"),
)
"""A fragment of a path, or the name of a function, and the class; the innermost frame is asked first."""
