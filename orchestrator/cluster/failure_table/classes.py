"""The classes of failures: what each means, whether it comes again, and what to do about it.

The labels are those of the public collection of failure logs that the table was checked against.
"""

from __future__ import annotations

from orchestrator.cluster.failure_table.rule import FailureClass

_MEMORY = (
    FailureClass(
        label="gpu_oom_load",
        meaning="The weights do not fit into the GPU's memory.",
        remedy="Spread the model over more GPUs, or use a quantized checkpoint or CPU offloading.",
        deterministic=True,
        retryable=False,
        knobs=("tensor_parallel_size", "quantization", "cpu_offload_gb"),
    ),
    FailureClass(
        label="gpu_oom_profile",
        meaning="The GPU's memory ran out while the engine profiled, warmed up, captured graphs or made its KV cache.",
        remedy="Lower max_num_batched_tokens, max_num_seqs or gpu_memory_utilization.",
        deterministic=True,
        retryable=False,
        knobs=("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization"),
    ),
    FailureClass(
        label="gpu_oom_runtime",
        meaning="The GPU's memory ran out while the engine served: a batch needed more than the profile had seen.",
        remedy="Lower gpu_memory_utilization, max_num_batched_tokens or the workspace's cap; soak the point.",
        deterministic=None,
        retryable=False,
        knobs=("gpu_memory_utilization", "max_num_batched_tokens"),
    ),
    FailureClass(
        label="gpu_memory_busy_at_start",
        meaning="Something else held the device's memory when the engine started.",
        remedy="End what holds it (see nvidia-smi), wait until an earlier engine is gone, or ask for less.",
        deterministic=None,
        retryable=True,
        knobs=("gpu_memory_utilization",),
    ),
    FailureClass(
        label="no_available_memory_for_cache_blocks",
        meaning="After weights and profile, no memory was left for the KV cache.",
        remedy="Raise gpu_memory_utilization, or lower what the profile needs (max_num_batched_tokens, max_num_seqs).",
        deterministic=True,
        retryable=False,
        knobs=("gpu_memory_utilization", "max_num_batched_tokens"),
    ),
    FailureClass(
        label="kv_cache_too_small",
        meaning="The KV cache cannot hold one request of max_model_len tokens.",
        remedy="Lower max_model_len to what the message says, raise gpu_memory_utilization, or use an fp8 KV cache.",
        deterministic=True,
        retryable=False,
        knobs=("max_model_len", "gpu_memory_utilization"),
    ),
    FailureClass(
        label="workspace_locked",
        meaning="A batch needed more workspace than the warm-up had reserved, after the workspace was locked.",
        remedy="Keep the planner within what the warm-up reserves: lower its limit, or raise what feeds both.",
        deterministic=True,
        retryable=False,
        knobs=("max_num_batched_tokens", "max_model_len", "attention_backend", "kv_cache_dtype"),
    ),
    FailureClass(
        label="symmetric_buffer_overflow",
        meaning="More tokens arrived at a rank than its symmetric or all-to-all buffer holds.",
        remedy="Raise the buffer's tokens per rank, or lower max_num_batched_tokens.",
        deterministic=True,
        retryable=False,
        knobs=("max_num_batched_tokens", "mega_moe_max_tokens"),
    ),
    FailureClass(
        label="host_oom",
        meaning="The host's memory ran out, or its kernel or container killed a process for it.",
        remedy="Give the node or container more memory, or lower swap space, CPU offloading and the number of workers.",
        deterministic=True,
        retryable=False,
        knobs=("swap_space", "cpu_offload_gb", "kv_offloading_size"),
    ),
    FailureClass(
        label="ray_host_oom",
        meaning="Ray's memory monitor killed a worker because the node's memory was nearly full. Not the GPU's.",
        remedy="Place fewer engines on the node or give it more memory; RAY_memory_usage_threshold moves the limit.",
        deterministic=None,
        retryable=True,
        knobs=("swap_space", "RAY_memory_usage_threshold"),
    ),
    FailureClass(
        label="shm_too_small",
        meaning="/dev/shm has no room for what NCCL, torch or vLLM share between processes.",
        remedy="Enlarge /dev/shm (--shm-size or --ipc=host), and remove files that dead engines left there.",
        deterministic=True,
        retryable=False,
        knobs=("shm_size",),
    ),
    FailureClass(
        label="disk_full",
        meaning="A file system or a quota is full.",
        remedy="Free the disk that is named: model cache, compile cache, Ray's spill folder or the run folder.",
        deterministic=True,
        retryable=False,
    ),
)

_CONFIGURATION = (
    FailureClass(
        label="bad_argument",
        meaning="The command line has an argument that this version does not know, or a value that it cannot read.",
        remedy="Correct the argument, or take it out; names change between versions.",
        deterministic=True,
        retryable=False,
    ),
    FailureClass(
        label="invalid_config",
        meaning="Values that cannot go together, or not with this model or this number of GPUs.",
        remedy="Change the values that the message names; state the rule as a constraint of the search space.",
        deterministic=True,
        retryable=False,
        knobs=("max_model_len", "tensor_parallel_size"),
    ),
    FailureClass(
        label="unsupported_backend_or_dcp",
        meaning="No attention backend here does this: head size, data type, sparse attention, context parallelism.",
        remedy="Choose another attention backend, KV cache type or data type, or no context parallelism.",
        deterministic=True,
        retryable=False,
        knobs=("attention_backend", "decode_context_parallel_size", "dtype"),
    ),
    FailureClass(
        label="quantization_or_kernel_unsupported",
        meaning="The quantization, or a kernel that it needs, does not exist for this device or these shapes.",
        remedy="Use another quantization or checkpoint, another tensor_parallel_size, or a newer device.",
        deterministic=True,
        retryable=False,
        knobs=("quantization", "tensor_parallel_size"),
    ),
    FailureClass(
        label="model_or_tokenizer_missing",
        meaning="The model, its weights or its tokenizer is not where it was looked for, or is damaged.",
        remedy="Check the path or name on every node, and that the download is whole; offline, fill the cache first.",
        deterministic=True,
        retryable=False,
        knobs=("model", "load_format"),
    ),
    FailureClass(
        label="permission_or_hf_gated",
        meaning="Access was denied: a gated or private repository, a token, or a file's permissions.",
        remedy="Accept the model's terms and set a token, or mend the permissions of the folder that is named.",
        deterministic=True,
        retryable=False,
        knobs=("model", "hf_token"),
    ),
    FailureClass(
        label="version_mismatch",
        meaning="Libraries, driver, processor or model do not go with this version of vLLM, torch or Ray.",
        remedy="Install the versions that go together, the same on every node; a new model may need a newer vLLM.",
        deterministic=True,
        retryable=False,
        knobs=("driver",),
    ),
    FailureClass(
        label="build_error",
        meaning="A package or extension could not be built.",
        remedy="Install a wheel for this platform, or the compiler and CUDA toolkit that the build asks for.",
        deterministic=True,
        retryable=False,
    ),
    FailureClass(
        label="bad_request_too_long",
        meaning="A request is longer than max_model_len. It is refused; the engine goes on.",
        remedy="Shorten the workload's prompts or outputs, or raise max_model_len.",
        deterministic=True,
        retryable=False,
        knobs=("max_model_len",),
    ),
    FailureClass(
        label="port_in_use",
        meaning="A port was taken already.",
        remedy="End what listens there, or choose another port. Another try takes a fresh one where ports are leased.",
        deterministic=True,
        retryable=True,
        knobs=("port",),
    ),
)

_KERNELS = (
    FailureClass(
        label="triton_or_compile_failure",
        meaning="Triton, Inductor or another compiler at run time failed.",
        remedy="Try enforce_eager; check the C compiler, ptxas and CUDA versions, and clear the compile caches.",
        deterministic=True,
        retryable=False,
        knobs=("enforce_eager", "TRITON_PTXAS_PATH"),
    ),
    FailureClass(
        label="cudagraph_capture_failed",
        meaning="A CUDA graph could not be captured.",
        remedy="Try another cudagraph_mode or attention backend, or enforce_eager.",
        deterministic=True,
        retryable=False,
        knobs=("cudagraph_mode", "enforce_eager", "attention_backend", "disable_custom_all_reduce"),
    ),
    FailureClass(
        label="custom_all_reduce_failed",
        meaning="vLLM's own all-reduce failed, mostly because GPUs cannot map each other's memory.",
        remedy="Set disable_custom_all_reduce; do not use expandable segments with it.",
        deterministic=True,
        retryable=False,
        knobs=("disable_custom_all_reduce",),
    ),
    FailureClass(
        label="cuda_illegal_memory_access",
        meaning="A kernel read or wrote where it must not, or the GPU failed.",
        remedy="Try again once; if it comes back, change the attention backend, and look for Xid errors.",
        deterministic=None,
        retryable=True,
        knobs=("attention_backend", "enforce_eager"),
    ),
    FailureClass(
        label="worker_segfault",
        meaning="A process of the engine died of a segmentation fault.",
        remedy="Try again once; if it comes back, look at the native stack that the log shows.",
        deterministic=None,
        retryable=True,
    ),
)

_DISTRIBUTED = (
    FailureClass(
        label="nccl_timeout_or_error",
        meaning="A collective operation failed or timed out.",
        remedy="Find the rank that failed first; check links, NCCL_SOCKET_IFNAME and /dev/shm; set NCCL_DEBUG=INFO.",
        deterministic=None,
        retryable=True,
        retryable_at_start=False,
        knobs=("tensor_parallel_size", "disable_custom_all_reduce"),
    ),
    FailureClass(
        label="distributed_init_timeout",
        meaning="The processes of an engine did not find each other.",
        remedy="Check VLLM_HOST_IP, host names, firewalls and GLOO_SOCKET_IFNAME on every node.",
        deterministic=None,
        retryable=True,
        knobs=("VLLM_HOST_IP", "tensor_parallel_size"),
    ),
    FailureClass(
        label="hang_shm_broadcast",
        meaning="A worker does not answer: the engine hangs.",
        remedy="End it and try again; py-spy dump of the workers shows where they wait.",
        deterministic=None,
        retryable=True,
    ),
    FailureClass(
        label="ray_actor_died",
        meaning="A Ray actor or worker died; Ray does not know why.",
        remedy="Try again; dmesg and the worker's log on its node may say more. Ray only guesses at an OOM killer.",
        deterministic=None,
        retryable=True,
        knobs=("distributed_executor_backend",),
    ),
    FailureClass(
        label="ray_placement_group_infeasible",
        meaning="The cluster has no place for the engine.",
        remedy="Lower the parallel sizes, free GPUs, or add nodes.",
        deterministic=True,
        retryable=False,
        knobs=("tensor_parallel_size", "pipeline_parallel_size"),
    ),
    FailureClass(
        label="node_lost",
        meaning="A node, or the Ray processes on it, is gone.",
        remedy="Try again on another node; put the node aside if it happens again.",
        deterministic=None,
        retryable=True,
    ),
)

_OTHERWISE = (
    FailureClass(
        label="engine_dead",
        meaning="The engine is gone, and what is there of the log does not say why.",
        remedy="Read the log from its beginning: the cause is above. Try again once if it had served.",
        deterministic=None,
        retryable=True,
        retryable_at_start=False,
    ),
    FailureClass(
        label="none",
        meaning="No failure: these lines are frightening, and a healthy engine writes them.",
        remedy="Nothing to do.",
        deterministic=None,
        retryable=False,
    ),
    FailureClass(
        label="unknown",
        meaning="Something failed in a way that the table does not know.",
        remedy="Read the log; if it is a failure that others will see, add its wording to the table.",
        deterministic=None,
        retryable=False,
    ),
)

CLASSES = {entry.label: entry for entry in (*_MEMORY, *_CONFIGURATION, *_KERNELS, *_DISTRIBUTED, *_OTHERWISE)}
"""Every class by its label."""
