"""The class of an error that no wording of the table tells, by the words in its message.

Versions reword their messages; what they speak of stays. A hint holds where every group has a word in the message.
"""

from __future__ import annotations

from orchestrator.cluster.failure_table.vocabulary import GONE, LATE, NO, WRONG

HINTS: tuple[tuple[str, ...], ...] = (
    # Memory: the engine's own, the GPU's, shared memory, a disk, the host's.
    (
        "workspace_locked",
        "workspace|lock_workspace",
        "locked|too small|exceeds|not allowed|not sized|lock_workspace|growth",
    ),
    (
        "symmetric_buffer_overflow",
        "symmetric|dispatch buffer|tokens_per_rank|all2all|all-to-all|hccl_buffsize",
        "exceed|small|overflow|alloc|<=| > | < |larger than",
        "!not support|unsupported",
    ),
    (
        "kv_cache_too_small",
        "kv cache|kvcache|kv_cache",
        "max_model_len|max seq len|model length|request",
        "larger|exceed|not enough|fit|needed|greater|needs|has only",
    ),
    (
        "no_available_memory_for_cache_blocks",
        "kv cache|cache block|kv_cache|gpu blocks|memory for kv",
        "no available|not enough|insufficient|no memory|less than requested",
    ),
    (
        "gpu_memory_busy_at_start",
        "gpu memory|device memory|free memory|hbm",
        "other process|in use|less than|not enough free",
    ),
    (
        "shm_too_small",
        "/dev/shm|shared memory|shm|/torch_|</torch_|/psm_|nccl-",
        "no space|too small|insufficient|not enough|exceed|cannot allocate",
    ),
    ("shm_too_small", "shared memory segment|nccl-shm", "error|fail"),
    ("shm_too_small", "bus error|sigbus"),
    ("disk_full", "disk|filesystem|file system|quota", "full|no space|not enough|exceeded|insufficient"),
    ("disk_full", "no space left|disk quota|enospc"),
    ("disk_full", "file too large|unexpected pos"),
    ("disk_full", "low on resource|evicted", "storage|disk"),
    ("gpu_oom", "aten::new_empty|aten::empty", "fail"),
    ("gpu_oom", "devicememory|device memory", "exhausted|lack of|fail|insufficient"),
    ("gpu_oom", "gpu memory|vram|memory for weights|weights", "not fit|n't fit|failed to allocate|cannot allocate"),
    (
        "ray_host_oom",
        "task|actor|ray worker|raylet|node_manager",
        "low on memory|memory low|memory pressure|memory usage",
        "kill|exceed",
    ),
    ("host_oom", "unable to allocate|bad_alloc|memoryerror", "!cuda|gpu|hip|device"),
    ("host_oom", "swap space", "lack|not enough|insufficient"),
    ("host_oom", "low on resource|evicted", "memory"),
    (
        "gpu_oom",
        "out of mem|outofmem|oom",
        "cuda|gpu|hip|device|vram|npu|xpu|hbm",
        "!oom-kill|oom kill|oom_kill|oomkill",
    ),
    (
        "gpu_oom",
        "out of mem|outofmem|oom",
        "!ray|host|cpu|ram|kill|killed|killer|oomkill|cgroup|node|container|memoryerror",
    ),
    ("host_oom", "oom", "host|cpu|ram|cgroup"),
    ("gpu_oom", "not enough memory", "!disk|kv cache|host|cpu|ram|command|resources|docker|container"),
    ("host_oom", "out of memory|oom-kill|oom kill|oomkill|cannot allocate memory|can't allocate memory"),
    # Words that are said of one thing alone, before those that are said of many.
    ("worker_segfault", "double free|corrupted size|invalid next size"),
    ("version_mismatch", "tokenizer|processor|config|transformers|torch", "no attribute"),
    ("version_mismatch", "keyerror", "rope_|architectures|model_type"),
    ("version_mismatch", "cannot open shared object|package metadata|packagenotfound|not compiled with"),
    ("distributed_init_timeout", "gloo", "unable to find address|no address|interface"),
    ("nccl_timeout_or_error", "gloo", "reset by peer|closed by peer"),
    (
        "distributed_init_timeout",
        "ray instance|ray cluster|to gcs",
        "could not find|failed to connect|unable to connect",
    ),
    ("ray_actor_died", "runtime environment|runtime_env|runtime env", "fail|error"),
    (
        "permission_or_hf_gated",
        "cannot access|can't access|not writable|permission denied",
        "!memory|address|peer|variable",
    ),
    ("bad_request_too_long", "decoder prompt|image item|video item|audio item", "exceed"),
    ("quantization_or_kernel_unsupported", "invalid device function|no kernel image"),
    # Kernels, attention backends and graphs.
    (
        "quantization_or_kernel_unsupported",
        "b_scales|b_zeros|b_q_weight|a_scales|size_n|size_k",
        "is not|must|mismatch",
    ),
    ("cuda_illegal_memory_access", "device-side assert|illegal memory access", "!device-side assertions|capture"),
    (
        "cudagraph_capture_failed",
        "current cuda stream|captured-stream|captured stream",
        "not initialized|not allow|synchronize",
    ),
    (
        "unsupported_backend_or_dcp",
        "dcp|pcp|decode-context-parallel|decode_context_parallel|context parallel",
        "error|assert|fail",
    ),
    ("quantization_or_kernel_unsupported", "moe", "backend|kernel|experts", NO),
    (
        "quantization_or_kernel_unsupported",
        "quant|bnb|bitsandbytes|gptq|awq|nf4|gguf|int4|int8|mxfp|nvfp|weight_scale|input_scale|scale_inv|zero_point|"
        "qweight|qzeros|g_idx|weight_packed|absmax",
        "keyerror|assertionerror|shape mismatch|size mismatch|load weights of|load_weights",
        "weight|shape|loading|layers|expert|tensor",
        "!kv cache|kv_cache|head_size",
    ),
    (
        "quantization_or_kernel_unsupported",
        "quantiz|marlin|gptq|awq|bitsandbytes|gguf|mxfp|nvfp|_gemm|scaled_mm|cutlass_",
        "!kv cache|kv_cache|attention|mla|dcp|flash",
        NO,
    ),
    (
        "cudagraph_capture_failed",
        "cuda graph|cudagraph|graph capture|capture",
        "captur|replay",
        "fail|error|not permitted|not support|invalid|unsupported|cannot|crash",
    ),
    (
        "triton_or_compile_failure",
        "jit|nvcc|nvrtc|ninja|ptxas",
        "fail|error",
        "compil|toolkit|flashinfer|deepgemm|deep_gemm|kernel|build",
        "!not support|unsupported",
    ),
    ("invalid_config", "speculative|spec_decode|spec decode", NO),
    (
        "unsupported_backend_or_dcp",
        "context parallel|dcp|pcp|attention backend|attention impl|head_size|head size|head dim|"
        "head_dim|flash attention|flashattention|fa version|flashinfer|flashmla|flash_attn|mla|"
        "sliding window|kv cache dtype|kv_cache_dtype|bfloat16|bf16|attention|xformers|backend",
        NO + "|unknown|backends are supported",
    ),
    (
        "quantization_or_kernel_unsupported",
        "quantiz|fp8|fp4|int4|int8|awq|gptq|marlin|bitsandbytes|gguf|mxfp|nvfp|kernel|"
        "cutlass|deepgemm|deep_gemm|moe backend|compute capability|compressed-tensors|group_size|thread_m|thread_n|"
        "thread_k|sm_|size_k|size_n|block_size_k|quant|no cutlass|gemm",
        NO + "|" + "divisible|no kernel|capability|failed to find|no compiled|cannot",
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
    # Between processes.
    (
        "nccl_timeout_or_error",
        "nccl|rccl|hccl|collective op|collective comm|all_reduce|allreduce|all_gather|nvshmem|deepep",
        "!require|must|incompatible|not compatible|not support|unsupported|not available",
        LATE + "|" + "error|fail|abort",
    ),
    (
        "distributed_init_timeout",
        "rendezvous|tcpstore|init_process_group|gloo|store|clients|handshake|socket|connect|hostname|"
        "distributed init|initiali",
        LATE + "|" + "refused|unreachable|cannot connect|unable to connect|failed to connect",
        "!huggingface|modelscope",
    ),
    ("model_or_tokenizer_missing", "huggingface|modelscope", LATE),
    (
        "hang_shm_broadcast",
        "rpc|execute_model|worker|engine core|enginecore|step",
        "!not registered",
        LATE + "|" + "hang|hung|stuck|not respond|unresponsive",
    ),
    ("port_in_use", "address|port|bind", "in use|already allocated|occupied|conflict|collision"),
    # Nodes and Ray.
    (
        "node_lost",
        "node|raylet|gcs|ray processes",
        "dead|died|lost|losing|heartbeat|terminated|preempt|unreachable|evicted|connection closed",
    ),
    ("node_lost", "raylet|gcs", "crash"),
    ("node_lost", "heartbeat|health check", "missed|missing|fail"),
    (
        "ray_placement_group_infeasible",
        "placement group|placement_group|bundle|ray cluster|node type|resource request|autoscaler",
        "cannot|infeasible|exceed|not enough|insufficient|timed out|could not|no available|unschedulable|exhaust|"
        "conflict",
    ),
    ("ray_placement_group_infeasible", "node|ray", "no gpu|not allocate|not have enough|required gpus|node type"),
    ("ray_actor_died", "worker|actor", "not registered|crashed due to|crashed error"),
    ("ray_actor_died", "actor|ray worker|raylet|ray::", "died|dead|crash|unavailable|killed"),
    # A death without a reason.
    (
        "engine_dead",
        "engine|mqllmengine|enginecore|llmengine|worker|vllmworker|workerproc|core proc",
        "died|dead|not running|is gone|terminated unexpectedly|initialization failed|failed to start|"
        "fails to initialize|background process|root cause",
    ),
    ("worker_segfault", "segfault|segmentation|sigsegv|core dumped|\u6bb5\u9519\u8bef"),
    # Builds and compilers at run time.
    ("build_error", "!cmakefiles", "cmake|pyproject|setuptools|wheel|pip-build-env|bdist_wheel", "error|fail"),
    (
        "triton_or_compile_failure",
        "deep_gemm|deepgemm|flashinfer|cutlass|cuda.o|jit/|jit_kernels",
        "failed to open|no such file|exit_code",
    ),
    (
        "triton_or_compile_failure",
        "triton|inductor|dynamo|ptx|nvcc|nvrtc|compil|jit|tilelang|cutedsl|mlir|llvm|ninja",
        "!backends are|attention backend|tritonmodel|triton_attn|cmakefiles",
        "error|fail|fatal|cannot|unsupported|invalid|not found|assert",
    ),
    (
        "triton_or_compile_failure",
        "erase node|fx graph|graph module|fake tensor|aot autograd|aot_autograd|symint|dynamic shape|fullgraph|"
        "graph break|debug context",
        "error|fail|cannot|unsupported|still had|invalid|exception",
    ),
    # Errors of the GPU.
    (
        "cuda_illegal_memory_access",
        "cuda error|hip error|illegal memory|illegal instruction|illegal address|device-side|cuda exception|"
        "gpu fault|acl stream",
        "access|assert|launch|fault|address|illegal|exception|unknown error|invalid argument",
    ),
    ("cuda_illegal_memory_access", "memory access fault|page fault|mmu fault"),
    ("cuda_illegal_memory_access", "assertion", "index out of bounds"),
    ("cuda_illegal_memory_access", "cuda", "invalid argument"),
    (
        "quantization_or_kernel_unsupported",
        "gptq|awq|marlin|bitsandbytes|gguf|_gemm|w8a8|w4a16|compressed_tensors|scaled_mm|scaled mm",
        "error|fail",
        "!kv_cache|kv-cache|kv cache",
    ),
    # Access, versions and models.
    (
        "permission_or_hf_gated",
        "permission|unauthorized|forbidden|access denied|gated repo|gated model|is gated|not authorized|"
        "authentication|read-only|too many requests",
    ),
    (
        "version_mismatch",
        "for causal lm|for conditional generation",
        "is not support|are not support|not recogni|inspect",
    ),
    (
        "version_mismatch",
        "version|driver|upgrade|transformers|architecture|abi|importerror|"
        "modulenotfounderror|no module named|cannot import",
        "require|mismatch|incompatib|too old|out of date|expected|not match|n't match|upgrade|"
        "not support|not be support|no module|cannot import|not recogni|insufficient|newer|import error|inspect",
    ),
    (
        "model_or_tokenizer_missing",
        "model|tokenizer|weight|checkpoint|adapter|safetensors|config.json|repo|hugging|.bin|.gguf|vocab|"
        "config format|config file|hub",
        GONE,
    ),
    ("model_or_tokenizer_missing", "parameter named|load weight|param_data|loaded_weight"),
    ("model_or_tokenizer_missing", "weight|checkpoint|state_dict", "mismatch"),
    ("model_or_tokenizer_missing", "keyerror", "weight|lm_head|embed_tokens|.bias"),
    # What a user asked for, and what has no other name.
    ("host_oom", "killed|sigkill", "!actor|ray|raylet|engine|user|request"),
    (
        "bad_argument",
        "argument|option|flag",
        "unrecognized|unexpected|unknown|invalid|required|no such|missing",
        "!cuda|hip|nccl",
    ),
    (
        "bad_request_too_long",
        "prompt|request|input|context length|max_tokens",
        "too long|longer than|maximum context|max_model_len|max_context_len|maximum length|at least|exhausted",
    ),
    (
        "invalid_config",
        "max_model_len|max_num_|tensor parallel|tensor_parallel|pipeline|"
        "data parallel|data_parallel|expert|num_heads|attention heads|block_size|block size|"
        "gpu_memory_utilization|world size|world_size|rope|lora|speculative|config|dtype|"
        "num_key_value_heads|vocab_size|chunked prefill|prefix caching|hybrid kv cache",
        NO + "|" + WRONG + "|disabled|failed to convert|validation error",
    ),
)
"""Class, and its groups of words in lower case, divided by bars; the first hint that holds counts. None of the words of
a group that begins with an exclamation mark may be in the message."""
