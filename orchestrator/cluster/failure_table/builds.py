"""Compilers and their drivers, which build a package once or a kernel at run time."""

from __future__ import annotations

from orchestrator.cluster.failure_table.context import BUILDING
from orchestrator.cluster.failure_table.rule import Rule, Strength

_TOOLS = (
    "CalledProcessError: Command [*gcc",
    "CalledProcessError: Command [*nvcc",
    "CalledProcessError: Command [*ninja",
    "error: command /usr/bin/gcc failed",
    "error: command /usr/bin/nvcc failed",
    "nvcc error",
    "nvcc compilation",
    "nvcc fatal",
    "nvcc * not found",
    "Could not find nvcc",
    "No such file or directory: *nvcc",
    "FileNotFoundError: * nvcc",
    "hipcc * error",
    "clang: error",
    "ninja: error",
    "ninja: build stopped",
    "ninja error",
    "Ninja build failed",
    "No such file or directory: ninja",
    "FileNotFoundError: * ninja",
)
"""What a compiler or ninja says, or who misses it."""

RULES = (
    Rule(label="build_error", phrases=_TOOLS, needs=BUILDING, source="torch.utils.cpp_extension under setup.py or pip"),
    Rule(
        label="triton_or_compile_failure",
        phrases=_TOOLS,
        unless=BUILDING,
        source="torch.utils.cpp_extension and other compilers at run time",
    ),
    Rule(
        label="build_error",
        phrases=(
            "Failed building wheel for",
            "Failed building editable for",
            "Command [cmake",
            "CMake Generate step failed",
            "Failed to build installable wheels",
            "Could not build wheels for",
            "CMake Error",
            "Cannot find CMake executable",
            "Error compiling objects for extension",
            "Failed to build vllm",
            "Getting requirements to build wheel did not run successfully",
            "Microsoft Visual C++ 14.0 or greater is required",
            "CUDA_HOME environment variable is not set",
        ),
        source="pip, CMake, torch.utils.cpp_extension",
        unless=("flashinfer/jit", "deep_gemm/", "triton/runtime/build.py"),
    ),
    Rule(
        label="build_error",
        phrases=(
            "error: subprocess-exited-with-error",
            "error: metadata-generation-failed",
            "This error originates from a subprocess, and is",
        ),
        strength=Strength.LIKELY,
        source="pip, whatever the build died of",
    ),
)
