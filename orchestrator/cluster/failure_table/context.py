"""What a log says around a failure: when it happened, what is only advice, and whether the engine lived on."""

from __future__ import annotations

LOADING = (
    "load_model",
    "make_layers",
    "create_weights",
    "initialize_model",
    "load_weights",
    "get_model(",
    "_initialize_model",
    "process_weights_after_loading",
    "Failed to load model",
    "linear weights: CUDA out of memory",
    "Loading safetensors checkpoint shards",
    "weight_loader",
    "init_device",
    "default_loader.py",
    "ModelWeightParameter",
    "Starting to load model",
)
"""Stands for gpu_oom_load."""

PROFILING = (
    "profile_run",
    "determine_num_available_blocks",
    "determine_available_memory",
    "_dummy_run",
    "_dummy_sampler_run",
    "dummy_run",
    "capture_model",
    "compile_or_warm_up_model",
    "warming up",
    "warm_up_model",
    "warmup_model",
    "model_warmup",
    "kernel_warmup",
    "autotune_warmup",
    "in warmup",
    "initialize_kv_cache",
    "initialize_from_config",
    "_allocate_kv_cache",
    "allocate_kv_cache",
    "init_cache_engine",
    "initialize_cache",
    "CacheEngine(",
    "profile_cudagraph_memory",
    "The sequence length used for profiling",
    "Starting profile run",
    "Capturing CUDA graph",
    "Capturing cudagraphs",
    "Capturing the model for CUDA graphs",
    "profile_multimodal",
)
"""Stands for gpu_oom_profile, also where frames of loading are in the log."""

SERVING = (
    "engine_step",
    "run_engine_loop",
    "run_busy_loop",
    "process_input_queue",
    "_process_engine_step",
    "step_with_batch_queue",
    "serving_chat.py",
    "serving_completion.py",
    "serving.py:",
    "/v1/chat/completions",
    "/v1/completions",
    "Dumping input data",
    "dump_input.py",
    "Error in model execution",
    "input of failed execution",
    "Dumping scheduler output",
    "EngineCore encountered a fatal error",
    "EngineCore encountered an issue",
    "Engine loop is not running",
    "Avg prompt throughput",
    "Application startup complete",
    "in generate",
    "llm.generate",
    "Processed prompts",
    "_run_engine",
    "AsyncEngineDeadE",
    "_raise_exception_on_finish",
    "_log_task_completion",
    "Added request",
    "output_handler failed",
)
"""Stands for gpu_oom_runtime."""

RUNNING = (
    "allocated in private pools",
    "Graph capturing finished",
    "in execute_model",
    "in forward",
    "torch_call_dispatcher(",
    "/attention/backends/",
    "cumem_allocator.cpp",
)
"""Stands for a model that is loaded, and captured or run: what sleeps and wakes up, and operators, come after that."""

CAPTURING = ("Capturing CUDA graph", "Capturing cudagraphs", "Capturing the model for CUDA graphs")
"""An exception after one of these, and before a sign of life, is one of the capture."""

BUILDING = (
    "pip-build-env",
    "pyproject_hooks",
    "running build_ext",
    "running bdist_wheel",
    "Building wheel for",
    "Failed building",
    "Command [cmake",
    "cmake --build",
    "setuptools/",
    "/setup.py",
    "pip install -e",
    "install from source",
    "This error originates from a subprocess, and is likely not a problem with pip",
)
"""An exception in a log with one of these is one of the build."""

IGNORED = ("Exception ignored in", "(most likely raised during interpreter shutdown)")
"""Lines that begin the traceback of an exception that Python itself passes over: all of it is harmless."""

ORDERLY = (
    "KeyboardInterrupt",
    "Received SIGTERM",
    "Received signal SIGTERM",
    "SIGTERM received at time",
    "Received SIGINT",
    "Finished server process",
    "Application shutdown complete",
    "^Shutting down",
    "graceful shutdown",
)
"""An end that somebody asked for: what processes say then is no failure unless an exception is among it."""

DUMPS = (
    "Dumping input data",
    "Dumping scheduler",
    "Initializing a V1 LLM engine",
    "Initializing an LLM engine",
    "args: ",
    "non-default args",
)
"""Lines that begin so print a configuration, whatever their level: no word in them is an event."""

DUMPED = ("CachedRequestData(", "num_scheduled_tokens={", "tokenizer_revision=", "SamplingParams(n=")
"""Stands somewhere in such a line, also where its beginning is lost."""

KEPT = ("Not enough free disk space to download",)
"""Reasons that count although they are told as one of ``PASSED_OVER``."""

ALIVE = (
    "Application startup complete",
    "Avg prompt throughput",
    "200 OK",
    "Graph capturing finished",
    "init engine (profile, create kv cache, warmup model) took",
    "Uvicorn running on",
)
"""An engine that hangs writes none of these any more."""

ADVICE = (
    "If out-of-memory error occurs during cudagraph capture",
    "If you are running out of memory, consider",
    "CUDA graphs can take additional * memory per GPU",
    "will cause a CUDA array out-of-bounds error",
    "This may lead to incorrect model outputs or CUDA errors",
    "If reserved but unallocated memory is large try setting",
    "CUDA kernel errors might be asynchronously reported",
    "raylet crashes unexpectedly (OOM, etc.)",
    "(1) The process is killed by SIGKILL by OOM killer due to high memory usage",
    "(2) ray stop --force is called",
    "(3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors",
    "(1) the process was killed by the OOM killer due to high memory usage",
    "(3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error",
    "If the process was killed by the kernel OOM killer (verifiable by checking for OOM in dmesg of the OOMing node)",
    "Possible reasons include: (1) SIGKILL by the user or system OOM killer",
    "(2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS",
    "to prevent node deaths by resource contention and significant loss of progress by uninformed kernel OOM killing",
    "If this is a private repository, make sure to pass a token having permission to this repo",
    "Consider provisioning more memory on this node or reducing task parallelism",
    "is already in use, trying port",
    "This may result in Ray placement group allocation failures",
)
"""Sentences that name a failure without any: they are taken out before anything is looked for."""

PASSED_OVER = (
    "RuntimeWarning:",
    "FutureWarning:",
    "DeprecationWarning:",
    "UserWarning:",
    "Error retrieving safetensors",
    "Error retrieving file list",
    "Failed to read file <frozen",
    "Failed to load plugin",
    "NET/Plugin",
    "Unable to load libnccl-",
    "failed to import tensorizer",
    "Failed to import from vllm._* with ModuleNotFoundError",
    "Failed to import vllm_*_C",
    "Failed to establish connection to the * exporter agent",
    "Export metrics to agent failed",
    "Exception happens when checking",
    "platform is not available because",
    "Custom allreduce is disabled",
    "Setup Custom allreduce failed",
    "NVLink detection failed. This is normal",
)
"""Beginnings of what a healthy engine goes on after, whatever reason the rest of the line gives."""

HARMLESS = (
    "Falling back to",
    "is not supported by the V1 Engine. Falling back to",
    "torch/_inductor/select_algorithm.py:*out of resource",
    "nvshmemi_transport_init*init failed for transport",
    "died, exit code: -15",
    "is over * full, available space: <n>*GB; capacity: * Object creation will fail if spilling is required",
    "is over * full, available space: <g>; capacity: * Object creation will fail if spilling is required",
    "Failed to import from vllm._",
    "libibverbs: Warning: couldn't load driver * No such file or directory",
    "NCCL WARN Failed to open libibverbs",
    "NCCL WARN NUMA auto balancing",
    "NCCL WARN Could not find a path for pattern",
    "client_support.cc:* NCCL WARN Call to bind failed: Address already in use",
    "NCCL WARN Missing iommu=pt",
    "Failed to advance FSM for request",
    "grammar rejected tokens",
    "Compile with TORCH_USE_CUDA_DSA to enable device-side assertions",
    "SIGTERM received at time",
    "Connection to socket failed for pathname",
    "Retrying to connect to socket for pathname",
    "process group has NOT been destroyed before we destruct ProcessGroupNCCL",
    "destroy_process_group() was not called before program exit",
    "resource_tracker: There appear to be",
    "nanobind: leaked",
    "leaked instance",
    "leaked function",
    "leaked type",
    "nanobind: this is likely caused by a reference counting issue",
    "errno: 97 - Address family not supported by protocol",
    "Using default MoE config. Performance might be sub-optimal",
    "Config file not found at",
    "Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal",
    "Cannot use FA version",
    "Failed to import Triton kernels",
    "Failed to get device capability: SM",
    "hostname of the client socket cannot be retrieved",
    "cannot be retrieved (gai error",
    "Unexpected error during package walk",
    "Unable to connect to usage",
    "Not enough SMs to use max_autotune_gemm",
    "out of resource: shared memory * for benchmark choice",
    "Regarding multimodal models",
    "please ignore because this is the expected termination process in Ray",
    "[state-dump]",
    "failed requests to aggregator",
    "events failed to report to aggregator",
    "Usage report request failed",
    "joblib will operate in serial mode",
    "[Errno 28] No space left on device. joblib",
    "is preempted by PreemptionMode",
    "because there is not enough KV cache space",
    "To silence this warning",
    "your platform lacks GPU P2P capability",
    "does not have native support for FP8 computation",
    "Weight-only FP8 compression will be used",
    "Token indices sequence length is longer than the specified maximum",
    "The object store is using /tmp instead of /dev/shm",
    "Cannot use FlashAttention-2 backend",
    "Cannot use FlashAttention backend",
    "Could not find nvidia-smi",
    "Failed to get the IP address, using 0.0.0.0",
    "using GPU * to perform barrier as devices used by this process are currently unknown",
    "should dump flag on TCPStore",
    "recvValue failed on SocketImpl",
    "sendBytes failed on SocketImpl",
    "Possibly too large swap space",
    "Detected * chat template content format",
    "optimal performance",
    "may be suboptimal",
    "not fully optimized yet",
    "404 Not Found",
    "Skipping import of cpp extensions due to incompatible torch version",
    "Unclosed client session",
    "This is not supported for all configurations of models and can yield errors",
    "Task was destroyed but it is pending",
    "factory for plugin * when one has already been registered",
    "Unable to register cu* factory",
    "No module named vllm._version",
    "has constructor arguments in the object store and max_restarts > 0",
    "does not exist. type=NotFoundError",
    "Future exception was never retrieved",
    "main process disappeared",
    "Cannot connect to host * Retrying",
)
"""What a healthy engine writes too. Lines with these are no sign of a failure, and never decide."""
