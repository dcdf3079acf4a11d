"""What stands around an error, in lines of our own: what was passed over, what ran, and who speaks."""

from __future__ import annotations

from typing import Any

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."

PLACES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "a wording inside a traceback that Python passes over": (
        "none",
        [
            "Exception ignored in: <function Moon.__del__ at 0x7f>",
            "Traceback (most recent call last):",
            '  File "/path/moon.py", line 1, in __del__',
            "OSError: [Errno 98] Address already in use",
            "INFO:     Application startup complete.",
        ],
        {},
    ),
    "an error after a traceback that Python passes over": (
        "port_in_use",
        [
            "Exception ignored in: <function Moon.__del__ at 0x7f>",
            "AttributeError: 'NoneType' object has no attribute 'shutdown'",
            "OSError: [Errno 98] Address already in use",
        ],
        {},
    ),
    "a traceback that is passed over, and cut before its exception": (
        "host_oom",
        ["Exception ignored in: <function Moon.__del__ at 0x7f>", "Memory cgroup out of memory: Killed process 7"],
        {},
    ),
    "a phase that nobody knows is no phase": (
        "gpu_oom_runtime",
        [OUT_OF_MEMORY, '  File "/path/vllm/moon.py", line 1, in execute_model'],
        {"phase": "unknown"},
    ),
    "a model that runs has been loaded": (
        "gpu_oom_runtime",
        ['  File "/path/vllm/v1/attention/backends/moon.py", line 1, in shine', OUT_OF_MEMORY],
        {},
    ),
    "a model that is loaded does not run": (
        "gpu_oom_load",
        ['  File "/path/vllm/moon.py", line 1, in load_model', OUT_OF_MEMORY, "  Moon, in forward"],
        {},
    ),
    "what was captured has been loaded": (
        "gpu_oom_runtime",
        ["INFO 11-30 12:00:00 [runner.py:1] Graph capturing finished in 9 secs", OUT_OF_MEMORY],
        {},
    ),
    "a dump is written only when a step has failed": (
        "engine_dead",
        ["ERROR 11-30 12:00:00 [dump_input.py:72] Dumping input data for V1 LLM engine: moon"],
        {},
    ),
    "NCCL tries a way and takes another": (
        "none",
        [
            "node-1:7:7 [0] misc/client_support.cc:9 NCCL WARN Call to bind failed: Address already in use",
            "INFO:     Application startup complete.",
        ],
        {},
    ),
    "a warning after an exception that says nothing": (
        "unknown",
        ["AssertionError", "WARNING 11-30 12:00:00 [moon.py:1] The attention backend does not support moons"],
        {},
    ),
    "a progress bar is no part of an exception": (
        "unknown",
        ["RuntimeError: the moon is gone", "Loading nccl moons:   0%|          | 0/3"],
        {},
    ),
    "a request that the processor cannot make a prompt of": (
        "bad_request_too_long",
        ["ERROR 11-30 12:00:00 [serving_chat.py:1] Error in preprocessing prompt inputs", "TypeError: moon"],
        {"phase": "serve"},
    ),
    "Ray has no place for a group": (
        "ray_placement_group_infeasible",
        ["Demands: {'GPU': 2.0} * 1 (PACK): 1+ pending placement groups"],
        {},
    ),
    "a package whose build says what it lacks": (
        "version_mismatch",
        [
            "error: subprocess-exited-with-error",
            "RuntimeError: The detected CUDA version (13.0) mismatches the version that was used to compile PyTorch",
        ],
        {},
    ),
    "a process group that was never made": (
        "distributed_init_timeout",
        ['  File "/path/torch/distributed/moon.py", line 1, in init_process_group', "ValueError: moon"],
        {},
    ),
    "a channel between actors that runs out of time": (
        "hang_shm_broadcast",
        ['  File "/path/ray/experimental/channel/moon.py", line 1, in read', "RuntimeError: moon"],
        {},
    ),
    "who falls back goes on": (
        "none",
        ["--moon is not supported by the V1 Engine. Falling back to V0."],
        {},
    ),
    "a launcher puts the host in front of NCCL's lines": (
        "none",
        ["node-1: node-1:7:7 [0] NCCL INFO moon.so: cannot open shared object file: No such file or directory"],
        {},
    ),
    "mpirun puts the rank in front of NCCL's lines": (
        "none",
        ["[1,0]<stdout>:node-1:7:7 [0] NCCL INFO moon.so: cannot open shared object file: No such file or directory"],
        {},
    ),
    "a plugin of NCCL's that nobody needs": (
        "none",
        ["Unable to load libnccl-moon.so : libnccl-moon.so: cannot open shared object file: No such file or directory"],
        {},
    ),
    "what the tuning of kernels tries and leaves": (
        "none",
        [
            "AUTOTUNE takes 1.9 seconds. torch/_inductor/select_algorithm.py:1469] out of resource: shared memory, "
            "Required: 9, Hardware limit: 8."
        ],
        {},
    ),
    "what an application caught and logs as a warning": (
        "quantization_or_kernel_unsupported",
        ["[WARN] Weight moon = 9 is not divisible by min_thread_k = 8."],
        {},
    ),
    "the text of a KeyError alone": (
        "quantization_or_kernel_unsupported",
        ["ERROR 11-30 12:00:00 [engine.py:1] 'layers.0.moon.weight.absmax'"],
        {},
    ),
    "memory by its abbreviation": ("gpu_oom_profile", ["RuntimeError: OOM"], {"phase": "profile"}),
    "the host's memory by its abbreviation": ("host_oom", ["RuntimeError: OOM on the host"], {}),
    "a hub that does not answer": (
        "model_or_tokenizer_missing",
        ["requests.exceptions.ConnectionError: HTTPSConnectionPool(host='cdn.huggingface.co'): Read timed out."],
        {},
    ),
    "a container that ends again and again": ("engine_dead", ["moon-0   0/1   CrashLoopBackOff   5 (2m ago)"], {}),
    "tasks that Ray has no place for": (
        "ray_placement_group_infeasible",
        ["Demands: {'CPU': 1.0, 'GPU': 1.0}: 1+ pending tasks/actors"],
        {},
    ),
    "a store that was never made": (
        "distributed_init_timeout",
        ["frame #6: c10d::TCPStore::TCPStore(std::string) + 0x20c (0x7f in libtorch_cpu.so)"],
        {},
    ),
    "a group's peer that is gone": (
        "nccl_timeout_or_error",
        ["RuntimeError: the gloo moon's connection was reset by peer"],
        {},
    ),
    "a sentence under a frame whose source is cut off": (
        "quantization_or_kernel_unsupported",
        ['[rank0]:   File "/path/vllm/moon.py", line 1, in shine', "moon does not support w8a8 weights of int8"],
        {},
    ),
    "the source under a frame is no sentence": (
        "unknown",
        [
            '  File "/path/vllm/moon.py", line 1, in shine',
            "    shine(int8_weights, 'not supported')",
            "KeyError: 'moon'",
        ],
        {},
    ),
    "who reports that it fails": (
        "unsupported_backend_or_dcp",
        ["The moon fails with an attention backend that shines"],
        {},
    ),
    "a log that goes on says failed": ("none", ["WARNING 11-30 12:00:00 [moon.py:1] The moon failed to shine"], {}),
    "a scaled product that fails": (
        "quantization_or_kernel_unsupported",
        ["RuntimeError: Error in CutlassMoonScaledMMKernel"],
        {},
    ),
    "a compiler's command that is cut off": (
        "triton_or_compile_failure",
        ["subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/moon.c', '-O3',"],
        {},
    ),
    "who kills before the kernel does": (
        "host_oom",
        ["earlyoom[7]: low memory! at or below SIGTERM limits: mem 3 %"],
        {},
    ),
}
"""By what it is about: the class, the lines, and what the caller knows."""
