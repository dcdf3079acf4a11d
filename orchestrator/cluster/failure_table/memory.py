"""Memory of the GPU that ran out: for the model, the KV cache, a workspace, a buffer."""

from __future__ import annotations

from orchestrator.cluster.failure_table.rule import Level, Rule, Strength

GPU_OOM = "gpu_oom"
"""Stands for the three classes of GPU memory until it is known when it ran out."""

RULES = (
    Rule(
        label="workspace_locked",
        phrases=("Workspace is locked", "Workspace growth is not allowed", "is locked but allocation from"),
        source="vllm v1/worker/workspace.py",
    ),
    Rule(
        label="gpu_oom_profile",
        phrases=(
            "out of memory occurred when warming up sampler",
            "out of memory occurred when * dummy requests",
        ),
        source="vllm v1/worker/gpu_model_runner.py _dummy_sampler_run",
        knobs=("max_num_seqs", "gpu_memory_utilization"),
    ),
    Rule(
        label=GPU_OOM,
        phrases=(
            "CUDA out of memory",
            "HIP out of memory",
            "XPU out of memory",
            "NPU out of memory",
            "torch.OutOfMemoryError",
            "cuda.OutOfMemoryError",
            "CUDA error: out of memory",
            "Cuda failure 2 out of memory",
            "Cuda failure out of memory",
            "HIP failure: out of memory",
            "HIP error: out of memory",
            "CUDA driver error: out of memory",
            "cudaErrorMemoryAllocation",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "hipErrorOutOfMemory",
            "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
            "UR_RESULT_ERROR_OUT_OF_RESOURCES",
            "OutOfMemoryError(CUDA",
            "Failed to allocate memory on device",
            "Tried to allocate * GPU * has a total capacity",
            "Tried to allocate * total capacity * already allocated",
            "torch.cuda.OutOfMemory",
            "OutOfMemoryError: CUDA",
            "OutOfMemoryError: HIP",
            "hipMalloc failed",
            "cuMemCreate failed",
        ),
        source="torch c10/cuda/CUDACachingAllocator.cpp",
    ),
    Rule(
        label=GPU_OOM,
        phrases=(
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate",
            "cudaMalloc failed",
        ),
        strength=Strength.LIKELY,
        source="cuBLAS, which gets no memory beside torch's",
    ),
    Rule(
        label=GPU_OOM,
        phrases=("RESOURCE_EXHAUSTED", "error code is 207001", "error code is 207018"),
        strength=Strength.LIKELY,
        source="XLA, whose errors are named like gRPC's; Ascend's ACL",
        near=("alloc", "reserve", "HBM", "out of memory", "error code is"),
    ),
    Rule(
        label=GPU_OOM,
        phrases=("torch_call_dispatcher( aten::new_empty", "aten::empty* API call failed at"),
        strength=Strength.LIKELY,
        source="torch/csrc/stable/ops.h: an operator of the stable ABI got no memory and does not say so",
        knobs=("gpu_memory_utilization", "max_num_batched_tokens"),
    ),
    Rule(
        label="kv_cache_too_small",
        phrases=(
            "Cannot auto-fit max_model_len",
            "the estimated maximum model length is",
            "is larger than the available KV cache memory",
            "To serve at least one request",
            "tokens that can be stored in KV cache",
            "max seq len (*) is larger than * KV cache",
            "needs * blocks, but the KV cache only has",
        ),
        source="vllm v1/core/kv_cache_utils.py _check_enough_kv_cache_memory; worker.py raise_if_cache_size_invalid",
    ),
    Rule(
        label="no_available_memory_for_cache_blocks",
        phrases=(
            "No available memory for the cache",
            "Not enough memory. Please try to increase --mem-fraction-static",
            "less than requested memory for kv",
        ),
        source="vllm v1/core/kv_cache_utils.py; v1/worker/cpu_worker.py; SGLang model_runner.py",
    ),
    Rule(
        label="no_available_memory_for_cache_blocks",
        phrases=("# GPU blocks: 0,", "Available KV cache memory: -", "larger than the profiled value -"),
        strength=Strength.CONSEQUENCE,
        source="vllm and SGLang: the figure before their own check",
        least=Level.INFO,
    ),
    Rule(
        label="gpu_memory_busy_at_start",
        phrases=(
            "on startup is less than the engine*s budget after excluding",
            "on startup is less than desired CPU memory utilization",
            "Free memory on device * on startup is less than",
            "Error: Free memory on device",
            "less than desired GPU memory",
            "reduce GPU memory used by other processes",
            "Error in memory profiling",
            "This happens when the GPU memory was not properly cleaned up before initializing",
            "This happens when other processes sharing the same container release GPU memory while vLLM is profiling",
            "busy or unavailable",
        ),
        source="vllm v1/worker/utils.py request_memory; gpu_worker.py determine_available_memory; the CUDA driver",
    ),
    Rule(
        label="symmetric_buffer_overflow",
        phrases=(
            "x.size(0) <= num_max_dispatch_tokens_per_rank",
            "<= num_max_dispatch_tokens_per_rank",
            "num_tokens <= num_max_tokens_per_rank",
            "exceeds the symmetric buffer",
            "exceeds * symmetric memory",
            "symmetric buffer * too small",
            "symmetric memory buffer is too small",
            "symmetric heap * exhausted",
            "nvshmem * out of memory",
            "nvshmem_malloc failed",
            "Failed to allocate symmetric memory",
            "HCCL_BUFFSIZE is too small",
            "NEEDED_HCCL_BUFFSIZE",
        ),
        source="DeepEP deep_ep.cpp; NVSHMEM; torch symmetric memory; Ascend's dispatch operators",
    ),
    Rule(
        label="symmetric_buffer_overflow",
        phrases=("SUSPECT REMOTE ERROR", "ERROR 507057"),
        strength=Strength.CONSEQUENCE,
        source="Ascend runtime: a peer read outside its buffer; the one public case was a symmetric buffer",
    ),
)
