"""Traps of reading a log: lines in our own words, each with the class that a careful reader gives it."""

from __future__ import annotations

from typing import Any

from tests.cluster.failure_lines import LINES

TRAPS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "torch's OutOfMemoryError is the GPU's": ("gpu_oom_load", ["torch.OutOfMemoryError: XPU out of memory."], {}),
    "Ray's OutOfMemoryError is the host's": ("ray_host_oom", ["ray.exceptions.OutOfMemoryError: Task was killed"], {}),
    "no space in /dev/shm is no full disk": (
        "shm_too_small",
        ["OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"],
        {},
    ),
    "Ray counts nobody": (
        "ray_actor_died",
        [
            "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed due to "
            "other reasons"
        ],
        {},
    ),
    "advice on capture is no failure": (
        "none",
        [
            "INFO 11-30 12:00:00 [model_runner.py:1] Capturing cudagraphs. If out-of-memory error occurs "
            "during cudagraph "
            "capture, consider decreasing `gpu_memory_utilization`."
        ],
        {},
    ),
    "advice on an override is no out-of-bounds error": (
        "invalid_config",
        [
            "Value error, User-specified max_model_len (9) is greater than the derived max_model_len (8). Positions "
            "exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        ],
        {},
    ),
    "an address in a prefix is no network failure": (
        "invalid_config",
        [
            "ValueError: [address=127.0.0.1:9, pid=3] User-specified max_model_len (9) is greater than the "
            "derived max_model_len"
        ],
        {},
    ),
    "an OOM inside a dead engine's message": (
        "gpu_oom_runtime",
        [
            "MQEngineDeadError: Engine loop is not running. Inspect the stacktrace: OutOfMemoryError('CUDA out "
            "of memory.')"
        ],
        {},
    ),
    "an OOM that never says so": (
        "gpu_oom_runtime",
        [
            'RuntimeError: torch_call_dispatcher( "aten::new_empty", "", stack.data()) API call failed at '
            "ops.h, line 939"
        ],
        {"phase": "serve"},
    ),
    "a port that was only tried": (
        "none",
        ["INFO 11-30 12:00:00 [utils.py:1] Port 8000 is already in use, trying port 8001"],
        {},
    ),
    "a silent minute while compiling": (
        "none",
        [LINES["hang_shm_broadcast"][0], "(APIServer pid=1) INFO:     Application startup complete."],
        {},
    ),
    "a refused request, although the engine goes on": (
        "bad_request_too_long",
        [
            "WARNING 11-30 12:00:00 [scheduler.py:1] Input prompt (9000 tokens) is too long and exceeds limit of 8192",
            'INFO:     10.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK',
        ],
        {},
    ),
    "a traceback that Python passes over": (
        "none",
        [
            "INFO 11-30 12:00:00 [core.py:1] done",
            "Exception ignored in: <function LLM.__del__ at 0x7f>",
            "Traceback (most recent call last):",
            '  File "/path/vllm/entrypoints/llm.py", line 1, in __del__',
            "AttributeError: 'NoneType' object has no attribute 'shutdown'",
        ],
        {},
    ),
    "an end that was asked for": (
        "none",
        ["INFO:     Shutting down", "Traceback (most recent call last):", "KeyboardInterrupt"],
        {},
    ),
    "an error that a configuration in a dump only seems to have": (
        "engine_dead",
        [
            "ERROR 11-30 12:00:00 [dump_input.py:72] Dumping input data for V1 LLM engine: CUDA out of memory",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        ],
        {},
    ),
    "a preempted request": (
        "none",
        [
            "WARNING 11-30 12:00:00 [scheduler.py:1] Sequence group 0 is preempted by PreemptionMode.RECOMPUTE "
            "mode because "
            "there is not enough KV cache space."
        ],
        {},
    ),
    "the phase tells one OOM from another": (
        "gpu_oom_profile",
        ["torch.OutOfMemoryError: CUDA out of memory."],
        {"phase": "profile"},
    ),
    "an unknown cause is not called a dead engine": (
        "unknown",
        ["KeyError: 'layers.0.moon'", "RuntimeError: Engine core initialization failed. See root cause above."],
        {},
    ),
    "new words for an old matter": (
        "unsupported_backend_or_dcp",
        ["NotImplementedError: MoonMLA has no support yet: DCP is unsupported by this attention backend"],
        {},
    ),
    "the place that raised it": (
        "quantization_or_kernel_unsupported",
        ['  File "/path/vllm/model_executor/layers/quantization/moon.py", line 3, in apply', "AssertionError"],
        {},
    ),
    "an exception while graphs are captured": (
        "cudagraph_capture_failed",
        [
            "Capturing CUDA graph shapes:  40%|####      | 14/35",
            "RuntimeError: a (50) must match b (56) at dimension 0",
        ],
        {},
    ),
    "an exception after graphs were captured": (
        "unknown",
        [
            "Capturing CUDA graph shapes: 100%|##########| 35/35",
            "INFO 11-30 12:00:00 [gpu_model_runner.py:1] Graph capturing finished in 9 secs",
            "RuntimeError: a (50) must match b (56) at dimension 0",
        ],
        {},
    ),
    "a signal without a word": ("worker_segfault", [], {"exit_code": -11}),
    "a bus error without a word": ("shm_too_small", [], {"exit_code": 135}),
    "SIGKILL does not say who sent it": ("engine_dead", ["loading"], {"exit_code": -9}),
    "an end in order": ("none", [], {"exit_code": 0}),
    "nothing at all": ("unknown", [], {}),
    "an exit code does not outdo a line": (
        "port_in_use",
        ["OSError: [Errno 98] Address already in use"],
        {"exit_code": -11},
    ),
    "records that were copied without line breaks": (
        "invalid_config",
        [
            "(EngineCore pid=7) INFO 11-30 12:00:00 [core.py:1] loading (EngineCore pid=7) ERROR 11-30 12:00:01 "
            "[core.py:2] Traceback (most recent call last): (EngineCore pid=7) ERROR 11-30 12:00:01 [core.py:2] "
            "ValueError: max_num_seqs and moons are not allowed together"
        ],
        {},
    ),
    "a launcher logs its child's exception as information": (
        "port_in_use",
        ["2026-11-30 12:00:00.123 [Info] (Launcher) (APIServer pid=7) OSError: [Errno 98] Address already in use"],
        {},
    ),
    "NCCL goes on without a plugin": (
        "none",
        [
            "node-1:7:7 [0] NCCL INFO NET/Plugin : dlerror=libnccl-moon.so: cannot open shared object file: "
            "No such file or directory, using internal implementation"
        ],
        {},
    ),
    "the words of an exception stand in its second line": (
        "triton_or_compile_failure",
        ["RuntimeError: the moon fails on", "its way through Inductor"],
        {},
    ),
    "a configuration that is printed does not tell the phase": (
        "gpu_oom_load",
        [
            "INFO 11-30 12:00:00 [core.py:1] Initializing a V1 LLM engine with config: {'kernel_warmup': 1}",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ],
        {"phase": "start"},
    ),
    "the nearest frames tell one OOM from another": (
        "gpu_oom_load",
        [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            '  File "/path/vllm/worker.py", line 1, in load_model',
            *[f'  File "/path/moon_{number}.py", line 1, in moon' for number in range(20)],
            '  File "/path/vllm/worker.py", line 1, in profile_run',
        ],
        {"phase": "start"},
    ),
    "what the validation of a configuration found": (
        "quantization_or_kernel_unsupported",
        [
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
            "  Value error, Moonlight quantization is not supported here [type=value_error, input_value='moon']",
        ],
        {},
    ),
    "a sentence without an exception": (
        "cudagraph_capture_failed",
        ['  File "/path/vllm/runner.py", line 1, in forward', "Moon model fails during graph capture"],
        {},
    ),
    "a sentence beside a dead engine": (
        "gpu_oom_runtime",
        ["ERROR 11-30 12:00:00 [async_llm.py:1] Engine background task failed", "CUDA OOM with two requests"],
        {"phase": "serve"},
    ),
    "the reason of what is passed over": (
        "none",
        [
            "ERROR 11-30 12:00:00 [config.py:1] Error retrieving safetensors: Repo id must be in the form "
            "'repo_name': '/models/moon'., retrying 1 of 2"
        ],
        {},
    ),
    "a disk that is nearly full has room": (
        "none",
        [
            "(raylet) file_system_monitor.cc:1: /tmp/ray/session_1 is over 95% full, available space: 26.4 GB; "
            "capacity: 763.8 GB. Object creation will fail if spilling is required."
        ],
        {},
    ),
    "a disk that is full has none": (
        "disk_full",
        [
            "(raylet) file_system_monitor.cc:1: /tmp/ray/session_1 is over 95% full, available space: 0 GB; "
            "capacity: 763.8 GB. Object creation will fail if spilling is required."
        ],
        {},
    ),
    "who cannot do something does without": ("none", ["Moon: your GPU cannot handle sequences of 5000 tokens."], {}),
    "a denial that nobody explains": ("unknown", ["RuntimeError: the moon cannot be reached"], {}),
    "a dead engine in other words": ("engine_dead", ["RuntimeError: MoonLLMEngine has died"], {}),
    "a platform that is only looked for": (
        "none",
        ["DEBUG 11-30 12:00:00 [__init__.py:1] MOON platform is not available because: No module named 'moon'"],
        {},
    ),
    "an exception while a wheel is built": (
        "build_error",
        ['  File "/tmp/pip-build-env-1/overlay/moon.py", line 1, in run', "KeyError: 'moon'"],
        {},
    ),
    "a worker that was told to end": (
        "none",
        ["ERROR 11-30 12:00:01 [workers.py:2] Worker VllmWorkerProcess pid 7 died, exit code: -15"],
        {"phase": "stop"},
    ),
    "an engine that was told to end": (
        "none",
        [
            "INFO:     Shutting down",
            "ERROR 11-30 12:00:01 [async_llm.py:1] AsyncLLM output_handler failed.",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        ],
        {"phase": "stop"},
    ),
    "an engine whose death ends the server": (
        "engine_dead",
        [
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
            "INFO:     Shutting down",
        ],
        {"phase": "serve"},
    ),
    "what a worker says of another's end": (
        "model_or_tokenizer_missing",
        [
            "ERROR 11-30 12:00:00 [engine.py:1] AssertionError: Attempted to load weight (torch.Size([2])) into moon",
            "ERROR 11-30 12:00:01 [workers.py:2] Worker pid 7 died, exit code: -15",
        ],
        {},
    ),
    "the signal in the list of engines that failed": (
        "worker_segfault",
        ["RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP3': -11}"],
        {},
    ),
    "an engine that was killed in that list": (
        "host_oom",
        ["RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP3': -9}"],
        {},
    ),
    "what Triton only passes on": (
        "cuda_illegal_memory_access",
        ["RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"],
        {},
    ),
    "what Triton says itself": (
        "triton_or_compile_failure",
        ["RuntimeError: Triton Error [CUDA]: the moon is invalid"],
        {},
    ),
}
"""By what it is about: the class, the lines, and what the caller knows."""
