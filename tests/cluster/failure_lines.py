"""Logs of every class in our own words for what surrounds the deciding line: short, so that a test can name them."""

from __future__ import annotations

WORKER = "(Worker_TP0 pid=4711) ERROR 11-30 12:00:01 [multiproc_executor.py:900] "
CORE = "(EngineCore_DP0 pid=4700) ERROR 11-30 12:00:02 [core.py:1100] "
API = "(APIServer pid=4600) "

AFTER = (
    CORE + "EngineCore failed to start.",
    CORE + "Exception: WorkerProc initialization failed due to an exception in a background process.",
    API + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "nanobind: leaked 2 instances!",
    "resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown",
)
"""What others say once the cause is out: none of it may decide."""

LINES: dict[str, tuple[str, ...]] = {
    "gpu_oom_load": (
        WORKER + '  File "/path/vllm/model_executor/models/utils.py", line 600, in make_layers',
        WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    "gpu_oom_profile": (
        WORKER + '  File "/path/vllm/v1/worker/gpu_model_runner.py", line 4000, in profile_run',
        WORKER + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    ),
    "gpu_oom_runtime": (
        "(APIServer pid=1) INFO:     Application startup complete.",
        WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.",
    ),
    "gpu_memory_busy_at_start": (
        WORKER + "ValueError: Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 71.2 GiB).",
    ),
    "no_available_memory_for_cache_blocks": (CORE + "ValueError: No available memory for the cache blocks.",),
    "kv_cache_too_small": (
        CORE
        + "ValueError: To serve at least one request with the models's max seq len (131072), (12.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (9.1 GiB).",
    ),
    "workspace_locked": (
        WORKER + "AssertionError: Workspace is locked but allocation from 'mla.py:1:f' requires 9.00 MB, current size "
        "is 4.00 MB.",
    ),
    "symmetric_buffer_overflow": (
        "RuntimeError: Failed: Assertion error /src/deep_ep.cpp:1 'x.size(0) <= num_max_dispatch_tokens_per_rank'",
    ),
    "host_oom": ("Loading safetensors checkpoint shards:  60% 3/5 [00:07<00:05,  2.40s/it]Killed",),
    "ray_host_oom": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "Memory on the node (IP: 10.0.0.1) was 60GB / 62GB (0.97), which exceeds the memory usage threshold of 0.95.",
    ),
    "shm_too_small": (
        "host-1:77:99 [0] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x1 "
        "(size 9637888), error: No space left on device (28)",
        WORKER + "RuntimeError: NCCL error: unhandled system error",
    ),
    "disk_full": ("OSError: [Errno 28] No space left on device: '/models/cache/blobs/1.incomplete'",),
    "bad_argument": (
        "usage: vllm serve [model_tag] [options]",
        "vllm serve: error: unrecognized arguments: --chunk-rows 9",
    ),
    "invalid_config": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        "  Value error, max_num_batched_tokens (512) is smaller than max_model_len (4096).",
    ),
    "unsupported_backend_or_dcp": (
        WORKER + "ValueError: No valid attention backend found for cuda with head_size=576.",
    ),
    "quantization_or_kernel_unsupported": (
        CORE + "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89.",
    ),
    "model_or_tokenizer_missing": (
        "OSError: Can't load tokenizer for '/models/x'. If you were trying to load it, check.",
    ),
    "permission_or_hf_gated": (
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)",
        "Cannot access gated repo for url http://hub/org/model/resolve/main/config.json.",
    ),
    "version_mismatch": ("ImportError: /path/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab",),
    "build_error": ("  error: subprocess-exited-with-error", "ERROR: Failed building wheel for vllm"),
    "bad_request_too_long": (
        "ERROR 11-30 12:00:00 [serving_chat.py:200] ValueError: This model's maximum context length is 4096 tokens.",
        'INFO:     10.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
    ),
    "port_in_use": (
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    ),
    "triton_or_compile_failure": (
        CORE + "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC.",
    ),
    "cudagraph_capture_failed": (
        WORKER + "RuntimeError: CUDA error: operation not permitted when stream is capturing",
    ),
    "custom_all_reduce_failed": ("Failed: Cuda error /src/csrc/custom_all_reduce.cuh:143 'invalid resource handle'",),
    "cuda_illegal_memory_access": (
        "[rank3]:[E1130 12:00:00.1 ProcessGroupNCCL.cpp:1900] [PG ID 2 Rank 3] Process group watchdog thread "
        "terminated "
        "with exception: CUDA error: an illegal memory access was encountered",
    ),
    "worker_segfault": ("!!!!!!! Segfault encountered !!!!!!!",),
    "nccl_timeout_or_error": (
        "[rank0]:[E1130 12:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=2, OpType=ALLREDUCE) ran for 600059 milliseconds before timing out.",
    ),
    "distributed_init_timeout": (
        WORKER + "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to (10.0.0.1, 46229).",
    ),
    "hang_shm_broadcast": (
        "(EngineCore pid=2) INFO 11-30 12:01:00 [shm_broadcast.py:700] No available shared memory broadcast "
        "block found "
        "in 60 seconds.",
        "(EngineCore pid=2) INFO 11-30 12:02:00 [shm_broadcast.py:700] No available shared memory broadcast "
        "block found "
        "in 60 seconds.",
    ),
    "ray_actor_died": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "The actor is dead because its worker process has died. There are some potential root causes. (1) The "
        "process is "
        "killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is "
        "crashed unexpectedly due to SIGSEGV or other unexpected errors.",
    ),
    "ray_placement_group_infeasible": (
        "(autoscaler +20s) Error: No available node types can fulfill resource request {'GPU': 16.0}.",
    ),
    "node_lost": (
        "The node with node id: 0a1b and address: 10.0.0.7 has been marked dead because the detector has "
        "missed too many "
        "heartbeats from it. This can happen when a (1) raylet crashes unexpectedly (OOM, etc.)",
    ),
    "engine_dead": (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
    ),
    "none": (
        "(EngineCore pid=2) INFO 11-30 12:01:00 [loggers.py:100] Engine 000: Avg prompt throughput: 9.0 tokens/s, "
        "Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 99.2%",
        "[W1130 12:00:00 socket.cpp:697] [c10d] The client socket cannot be initialized to connect to [host]:5 "
        "(errno: 97 "
        "- Address family not supported by protocol).",
    ),
    "unknown": (WORKER + "ValueError: the moon is not in the seventh house",),
}
"""At least one log for each class."""

AT_LAST = frozenset({"none", "unknown", "engine_dead", "bad_request_too_long"})
"""Classes that give way to what ``AFTER`` says."""
