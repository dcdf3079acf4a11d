"""What the words of an error hint at, where no wording of the table decides: lines in our own words."""

from __future__ import annotations

from typing import Any

WORDS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "a scale that the model has no place for": (
        "quantization_or_kernel_unsupported",
        ["KeyError: 'layers.0.moon.weight_scale'"],
        {},
    ),
    "a weight that the model has no place for": (
        "model_or_tokenizer_missing",
        ["KeyError: 'layers.0.moon.weight'"],
        {},
    ),
    "a warning without a level in capitals": (
        "none",
        ["Warning: caught exception 'Found no NVIDIA driver on your system', moon monitor disabled"],
        {},
    ),
    "a compiler that a backend needs": (
        "triton_or_compile_failure",
        ["RuntimeError: FlashInfer moon JIT fails: compiler and toolkit are incompatible"],
        {},
    ),
    "the function that found no room for the cache": (
        "no_available_memory_for_cache_blocks",
        ['  File "/path/vllm/worker/moon.py", line 1, in raise_if_cache_size_invalid', "ValueError: moon"],
        {},
    ),
    "a build whose log ends in the middle": (
        "build_error",
        ['  File "/tmp/pip-build-env-1/overlay/moon.py", line 1, in setup'],
        {},
    ),
    "a model type that transformers does not know": (
        "version_mismatch",
        [
            '  File "/x/dist-packages/transformers/models/auto/configuration_auto.py", line 1, in __getitem__',
            "KeyError: 'moon'",
        ],
        {},
    ),
    "a frame of a library in Debian's folder": (
        "cudagraph_capture_failed",
        [
            '  File "/x/dist-packages/vllm/v1/worker/moon.py", line 1, in capture_model',
            '  File "/x/dist-packages/moon/nn.py", line 2, in forward',
            "ValueError: moon",
        ],
        {},
    ),
    "an adapter that is not there": (
        "model_or_tokenizer_missing",
        ["ValueError: Loading moon failed: No adapter found for /moon"],
        {},
    ),
    "an assertion on the device in other words": (
        "cuda_illegal_memory_access",
        ["RuntimeError: moon engine ends with a device-side assert in TRITON_ATTN"],
        {},
    ),
    "a tokenizer's file that is no tokenizer": (
        "model_or_tokenizer_missing",
        ["RuntimeError: Internal: could not parse MoonProto from /moon/tokenizer.model"],
        {},
    ),
    "a scale of another shape": (
        "quantization_or_kernel_unsupported",
        ["RuntimeError: b_scales dim 1 = 7 is not size_n = 9"],
        {},
    ),
    "an attribute of a library's class": (
        "version_mismatch",
        ["AttributeError: MoonVLProcessor has no attribute glow"],
        {},
    ),
    "an attribute of anything else": (
        "version_mismatch",
        ["AttributeError: 'Moon' object has no attribute 'glow'"],
        {},
    ),
    "an attribute of nothing": ("unknown", ["AttributeError: 'NoneType' object has no attribute 'glow'"], {}),
    "how to find out more is no cause": (
        "engine_dead",
        [
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            "ERROR 11-30 12:00:00 [async_llm.py:1] AsyncLLM output_handler failed.",
        ],
        {},
    ),
    "a module that only begins like another": (
        "version_mismatch",
        ["ModuleNotFoundError: No module named 'triton_moon'"],
        {},
    ),
    "a request that its grammar ends": (
        "none",
        ["ERROR 11-30 12:00:00 [moon.py:1] Failed to advance FSM for request moon for tokens 7. Please file an issue."],
        {},
    ),
    "a folder that cannot be written": ("permission_or_hf_gated", ["Error: cannot access `/.triton` of the moon"], {}),
    "a picture that is too large": (
        "bad_request_too_long",
        ["BadRequestError: The decoder prompt has a(n) image item of 70 moons, which exceeds the cache"],
        {},
    ),
    "a function that the device does not have": (
        "quantization_or_kernel_unsupported",
        ["RuntimeError: MOON error: invalid device function"],
        {},
    ),
    "memory that ran out in a line of the server's": (
        "gpu_oom_runtime",
        ["ERROR 11-30 12:00:00 serving_chat.py:661] torch.OutOfMemoryError: CUDA out of memory. Tried"],
        {},
    ),
    "a driver of InfiniBand that nobody has": (
        "none",
        [
            "libibverbs: Warning: couldn't load driver 'libmoon-rdmav34.so': libmoon-rdmav34.so: cannot open shared "
            "object file: No such file or directory"
        ],
        {},
    ),
    "an instruction that the GPU does not know": (
        "cuda_illegal_memory_access",
        ["CUDA says illegal instruction in the moonlight"],
        {},
    ),
    "an instruction that the processor does not know": ("version_mismatch", ["Illegal instruction (core dumped)"], {}),
    "an interface that Gloo does not find": (
        "distributed_init_timeout",
        ["RuntimeError: gloo: unable to find address for the moon"],
        {},
    ),
    "an environment that Ray cannot make": ("ray_actor_died", ["MoonError: the runtime_env failed at 'moon'"], {}),
    "a segment that cannot be made": ("shm_too_small", ["RuntimeError: failed at shared memory segment moon"], {}),
    "a checkpoint of other shapes": (
        "quantization_or_kernel_unsupported",
        [
            '  File "/path/vllm/moon.py", line 1, in load_weights',
            "    moon = 1",
            "The GGUF quantized moon ends with a tensor size mismatch.",
        ],
        {},
    ),
    "a semaphore has no space in memory": (
        "shm_too_small",
        [
            '  File "/usr/lib/python3/multiprocessing/synchronize.py", line 57, in __init__',
            "OSError: [Errno 28] No space left on device",
        ],
        {},
    ),
    "a disk far from a semaphore": (
        "disk_full",
        [
            '  File "/usr/lib/python3/multiprocessing/synchronize.py", line 57, in __init__',
            *[f'  File "/path/moon_{number}.py", line 1, in moon' for number in range(20)],
            "OSError: [Errno 28] No space left on device",
        ],
        {},
    ),
    "a compiler while a package is built": (
        "build_error",
        ["running build_ext of /moon/setup.py", "ninja: build stopped: subcommand failed."],
        {},
    ),
    "a build by a tool that names another": (
        "build_error",
        ["CalledProcessError: Command '['cmake', '/moon', '-G', 'Ninja']' returned non-zero exit status 1."],
        {},
    ),
    "a compiler's frame while a package is built": (
        "build_error",
        [
            '  File "/tmp/pip-build-env-1/site-packages/torch/utils/cpp_extension.py", line 1, in run',
            "KeyError: 'moon'",
        ],
        {},
    ),
    "a frame of Python's own modules": (
        "triton_or_compile_failure",
        [
            "ERROR 11-30 12:00:00 [core.py:1] EngineCore failed to start.",
            '  File "/x/site-packages/torch/utils/cpp_extension.py", line 1, in moon',
            '  File "/usr/lib/python3.12/subprocess.py", line 2, in run',
        ],
        {},
    ),
    "a weight of another shape": (
        "model_or_tokenizer_missing",
        [
            '  File "/path/vllm/model_executor/layers/linear.py", line 1, in weight_loader',
            "RuntimeError: The moon (264) is not the sun (576)",
        ],
        {},
    ),
    "a compiler while a model is started": ("triton_or_compile_failure", ["ninja: build stopped."], {}),
    "an exception that only says that it was cancelled": (
        "invalid_config",
        [
            '  File "/path/vllm/v1/attention/moon.py", line 1, in wait',
            "MoonError: cancelled",
            "ValueError: max_num_seqs and moons are not allowed together",
        ],
        {},
    ),
    "an exception that passes on a traceback": (
        "permission_or_hf_gated",
        [
            '  File "/path/vllm/distributed/kv_transfer/moon.py", line 1, in wait',
            "RuntimeError: Last moon error: Traceback (most recent call last):",
            '  File "/moon/client.py", line 1, in connect',
            "MoonError: authentication without a ticket",
        ],
        {},
    ),
    "a death before its cause": (
        "nccl_timeout_or_error",
        [
            "ERROR 11-30 12:00:00 [moon.py:1] The moon engine's background process fails",
            "ERROR 11-30 12:00:01 [moon.py:1] The NCCL communicator of the moon ends in an error",
        ],
        {},
    ),
    "words that are joined by a hyphen": (
        "cudagraph_capture_failed",
        ["RuntimeError: the moon's cuda-graph replay fails"],
        {},
    ),
    "a call of all workers that ran out of time without a word": (
        "hang_shm_broadcast",
        ['  File "/path/vllm/v1/executor/moon.py", line 1, in collective_rpc', "TimeoutError"],
        {},
    ),
    "a time that ran out without a word anywhere else": (
        "unknown",
        ['  File "/path/moon.py", line 1, in shine', "TimeoutError"],
        {},
    ),
    "a value that is not among those allowed": (
        "invalid_config",
        [
            "moonlight",
            "  Input should be 'full' or 'half' [type=literal_error, input_value='new', input_type=str]",
        ],
        {},
    ),
    "arguments that were checked and refused": (
        "invalid_config",
        ["ValueError: A moon with glow requires both sun and night to be provided."],
        {},
    ),
    "advice is no hint": (
        "engine_dead",
        [
            "ERROR 11-30 12:00:00 [async_llm.py:1] AsyncLLM output_handler failed.",
            "The error of the moon may be a lost permission. If this is a private repository, make sure to pass a "
            "token having permission to this repo.",
        ],
        {},
    ),
    "what was looked for and not found": (
        "unsupported_backend_or_dcp",
        ["RuntimeError: No attention kernel available for moons"],
        {},
    ),
    "kernels of the experts": (
        "quantization_or_kernel_unsupported",
        ["ValueError: MoE backend MOON does not support this deployment with attention sinks"],
        {},
    ),
    "a tensor that only quantized weights have": (
        "quantization_or_kernel_unsupported",
        ["KeyError: 'layers.0.moon.zero_point'"],
        {},
    ),
    "a kernel of quantized weights that fails": (
        "quantization_or_kernel_unsupported",
        ["RuntimeError: marlin_moon error: shape"],
        {},
    ),
    "two servers with one port": ("port_in_use", ["RuntimeError: port conflict between two moons"], {}),
    "a speculative model that does not go with a setting": (
        "invalid_config",
        ["NotImplementedError: Speculative moons are not supported with this backend"],
        {},
    ),
    "weights of another shape": (
        "model_or_tokenizer_missing",
        ["RuntimeError: shape mismatch between the moon and the checkpoint"],
        {},
    ),
    "an architecture that the library lacks": (
        "version_mismatch",
        ["ValueError: MoonForCausalLM is not recognised"],
        {},
    ),
    "a feature that the architecture lacks": (
        "invalid_config",
        ["ValueError: MoonForCausalLM does not support moonlit adapters"],
        {},
    ),
    "a field that another version of the configuration has": ("version_mismatch", ["KeyError: 'rope_moon'"], {}),
    "an assertion on the GPU": (
        "cuda_illegal_memory_access",
        ["moon.cu:7: operator(): Assertion `moon < size && 'index out of bounds'` failed."],
        {},
    ),
    "an argument of the GPU's, not of the command's": (
        "cuda_illegal_memory_access",
        ["RuntimeError: CUDA moon: invalid argument"],
        {},
    ),
    "who reports that it fails to start": (
        "quantization_or_kernel_unsupported",
        ["Moon-7B-AWQ fails to start", '  File "/path/vllm/moon.py", line 1, in moon'],
        {},
    ),
}
"""By what it is about: the class, the lines, and what the caller knows."""
