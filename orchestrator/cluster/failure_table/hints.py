"""The class of an error that no wording of the table tells, by the words in its message.

Versions reword their messages; what they speak of stays. A hint holds where every group has a word in the message.
"""

from __future__ import annotations

_NO = (
    "not support|unsupported|only support|n't support|supported for now|not yet|not implemented|"
    "not available|requires|invalid|incompatible|only available|only work"
)
_GONE = (
    "not found|no such|missing|not exist|n't exist|cannot find|can't find|could not find|"
    "n't find|corrupt|failed to load|cannot load|can't load|n't load|no file|not a valid|invalid|"
    "cannot reach|offline|unable to locate|empty|truncated|unreadable|no tokenizer|no config"
)
_WRONG = (
    "must|divisible|greater|less than|smaller|larger|exceed|cannot be|should be|invalid|"
    "not allowed|incompatible|not compatible|out of range|only be|mismatch"
)
_LATE = "timed out|timeout|time out|timeouterror"

HINTS: tuple[tuple[str, ...], ...] = (
    (
        "workspace_locked",
        "workspace",
        "locked|too small|exceeds|not allowed",
    ),
    (
        "symmetric_buffer_overflow",
        "symmetric|dispatch buffer|tokens_per_rank",
        "exceed|small|overflow|alloc|<=",
    ),
    (
        "kv_cache_too_small",
        "kv cache|kvcache|kv_cache",
        "max_model_len|max seq len|model length",
        "larger|exceed|not enough|fit|needed",
    ),
    (
        "no_available_memory_for_cache_blocks",
        "kv cache|cache block|kv_cache|gpu blocks",
        "no available|not enough|insufficient|no memory",
    ),
    (
        "gpu_memory_busy_at_start",
        "gpu memory|device memory|free memory|hbm",
        "other process|in use|less than|not enough free",
    ),
    (
        "shm_too_small",
        "/dev/shm|shared memory|shm",
        "no space|too small|insufficient|not enough|exceed|cannot allocate",
    ),
    (
        "disk_full",
        "disk|filesystem|file system|quota",
        "full|no space|not enough|exceeded|insufficient",
    ),
    (
        "disk_full",
        "no space left|disk quota|enospc",
    ),
    (
        "gpu_oom",
        "out of memory|outofmemory",
        "cuda|gpu|hip|device|vram|npu|xpu|hbm",
    ),
    (
        "host_oom",
        "out of memory|oom-kill|oom kill|oomkill|cannot allocate memory|can't allocate memory",
    ),
    (
        "unsupported_backend_or_dcp",
        "context parallel|dcp|pcp|attention backend|attention impl|head_size|head size|head dim|"
        "head_dim|flash attention|flashattention|flashinfer|flashmla|flash_attn|mla|"
        "sliding window|kv cache dtype|kv_cache_dtype|bfloat16|attention|xformers|backend",
        _NO,
    ),
    (
        "quantization_or_kernel_unsupported",
        "quantiz|fp8|fp4|int4|int8|awq|gptq|marlin|bitsandbytes|gguf|mxfp|nvfp|kernel|"
        "cutlass|deepgemm|deep_gemm|moe backend|compute capability|compressed-tensors|group_size|"
        "sm_|size_k|size_n|block_size_k|quant|no cutlass|gemm",
        _NO + "|" + "divisible|no kernel|capability|failed to find|no compiled|cannot",
    ),
    (
        "cudagraph_capture_failed",
        "cuda graph|cudagraph|graph capture|stream is capturing|during capture",
        "fail|error|not permitted|not support|invalid|unsupported|cannot",
    ),
    (
        "custom_all_reduce_failed",
        "custom_all_reduce|custom allreduce|custom all reduce|custom_ar|quick_reduce",
        "fail|error|invalid",
    ),
    (
        "nccl_timeout_or_error",
        "nccl|rccl|hccl|collective|all_reduce|allreduce|all_gather|nvshmem|deepep",
        _LATE + "|" + "error|fail|abort",
    ),
    (
        "distributed_init_timeout",
        "rendezvous|tcpstore|init_process_group|gloo|store|clients|handshake|socket|connect|hostname|ready",
        _LATE + "|" + "refused|unreachable|cannot connect|unable to connect|failed to connect",
    ),
    (
        "hang_shm_broadcast",
        "rpc|execute_model|worker|engine core|enginecore|step",
        _LATE + "|" + "hang|hung|stuck|not respond|unresponsive",
    ),
    (
        "port_in_use",
        "address|port|bind",
        "in use|already allocated|occupied",
    ),
    (
        "node_lost",
        "node|raylet|gcs",
        "dead|died|lost|heartbeat|terminated|preempt|unreachable|evicted",
    ),
    (
        "node_lost",
        "heartbeat|health check",
        "missed|missing|fail",
    ),
    (
        "ray_placement_group_infeasible",
        "placement group|placement_group|bundle|ray cluster|node type|resource request|autoscaler",
        "cannot|infeasible|exceed|not enough|insufficient|timed out|could not|no available|unschedulable",
    ),
    (
        "ray_actor_died",
        "actor|ray worker|raylet|ray::",
        "died|dead|crash|unavailable|killed",
    ),
    (
        "worker_segfault",
        "segfault|segmentation|sigsegv|core dumped",
    ),
    (
        "triton_or_compile_failure",
        "triton|inductor|dynamo|ptx|nvcc|nvrtc|compil|jit|tilelang|cutedsl|mlir|llvm|ninja",
        "error|fail|cannot|unsupported|invalid|not found",
    ),
    (
        "cuda_illegal_memory_access",
        "cuda error|hip error|illegal|device-side|cuda exception|gpu fault|acl stream",
        "access|assert|launch|fault|address|illegal|exception|unknown error",
    ),
    (
        "permission_or_hf_gated",
        "permission|unauthorized|forbidden|access denied|gated|not authorized|authentication|read-only",
    ),
    (
        "version_mismatch",
        "version|driver|incompatible|upgrade|transformers|architecture|abi|importerror|"
        "modulenotfounderror|no module named|cannot import",
        "require|mismatch|incompatible|too old|out of date|expected|not match|n't match|upgrade|"
        "not support|no module|cannot import|not recogni|insufficient|newer",
    ),
    (
        "model_or_tokenizer_missing",
        "model|tokenizer|weight|checkpoint|safetensors|config.json|repo|hugging|.bin|.gguf|vocab|"
        "config format|config file|hub",
        _GONE,
    ),
    (
        "bad_argument",
        "argument|option|flag|--",
        "unrecognized|unexpected|unknown|invalid|required|no such|missing",
    ),
    (
        "bad_request_too_long",
        "prompt|request|input|context length",
        "too long|longer than|maximum context|max_model_len|maximum length",
    ),
    (
        "invalid_config",
        "max_model_len|max_num_seqs|max_num_batched_tokens|tensor parallel|tensor_parallel|pipeline|"
        "data parallel|data_parallel|expert|num_heads|attention heads|block_size|block size|"
        "gpu_memory_utilization|world size|world_size|rope|lora|speculative|config|dtype|"
        "num_key_value_heads|vocab_size|chunked prefill|prefix caching",
        _NO + "|" + _WRONG,
    ),
)
"""Class, and its groups of words in lower case, divided by bars; the first hint that holds counts."""
