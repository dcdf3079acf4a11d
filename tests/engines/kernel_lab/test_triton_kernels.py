"""The Triton kernels against the plain torch path, in Triton's interpreter: their arithmetic, not their speed.

The interpreter must be chosen before the kernels are defined, for the whole process. So the proofs are in
``triton_proofs.py``, and a process of its own runs them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from orchestrator.engines.kernel_lab.kernels import kernels_for

PROOFS = Path(__file__).with_name("triton_proofs.py")


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_every_proof_passes_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PROOFS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=PROOFS.parents[3], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cpu_has_the_plain_kernels() -> None:
    assert kernels_for(torch.device("cpu")).name == "torch"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(("dtype", "step"), [("bf16", 32), ("fp32", 16)])
def test_sparse_attention_compiles_for_a_gpu_that_is_not_here(
    dtype: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    # Triton warns of a change of this default.
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    import triton  # type: ignore[import-untyped]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from orchestrator.engines.kernel_lab import triton_kernels

    kernel = triton_kernels._sparse_kernel
    types = {
        **dict.fromkeys(("queries", "rows", "out"), f"*{dtype}"),
        **dict.fromkeys(("indices", "lengths"), "*i32"),
        **dict.fromkeys(("heads", "width", "columns"), "i32"),
        "sink": "*fp32",
        "places": "*i64",
    }
    constants = {"tile_heads": 16, "tile_width": 512, "step": step, "precision": "ieee" if dtype == "fp32" else "tf32"}
    source = ASTSource(kernel, {name: types.get(name, "constexpr") for name in kernel.arg_names}, constexprs=constants)
    # Compute capability 9.0 with warps of 32 threads: the H100 and the H200.
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    assert compiled.asm["cubin"]
    # What a block may take there, 227 KiB; a kernel beyond it compiles and cannot be launched.
    assert 0 < compiled.metadata.shared <= 227 * 1024
