"""Arguments of the lab: what is wrong is one line with its class."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from orchestrator.engines.kernel_lab import LabError, lab_args


def test_importing_the_room_imports_no_torch() -> None:
    code = "import sys, orchestrator.engines.kernel_lab; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_defaults() -> None:
    args = lab_args({"layers": {"c4a": 2, "c128a": 1}})
    assert args.tokens_per_block == 256
    assert args.blocks == 16 * 64
    assert [kind.name for kind in args.v4_kinds] == ["c4a", "c128a"]
    assert (args.mla_kind, args.mla_layers) == (None, 0)
    dense = lab_args({"layers": {"dense": 3}, "num_kv_blocks": 5})
    assert (dense.tokens_per_block, dense.blocks, dense.mla_kind, dense.mla_layers) == (64, 5, "dense", 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layer": {"dense": 1}}, "unknown argument of the kernel lab 'layer'; did you mean 'layers'? "),
        ({}, "layers: Field required"),
        ({"layers": {}}, "layers: Dictionary should have at least 1 item after validation, not 0, got {}"),
        ({"layers": {"c4": 1}}, "unknown kind of layer 'c4'; did you mean 'c4a'? Allowed: c128a, c1a, c2a, c4a, dense"),
        ({"layers": {"c4a": 0}}, "layers.c4a: Input should be greater than or equal to 1, got 0"),
        ({"layers": {"dense": 1, "sparse": 1}}, "layers cannot be dense and sparse in one engine"),
        ({"layers": {"c128a": 1}, "block_size": 64}, "block_size must be a multiple of 128 for c128a layers, got 64"),
        ({"layers": {"dense": 1}, "heads": "8"}, "heads: Input should be a valid integer, got '8'"),
        ({"layers": {"dense": 1}, "chunk_order": "deep"}, "chunk_order: Input should be 'batch', 'width', 'optimal'"),
        ({"layers": {"dense": 1}, "kv_cache_dtype": "fp8_ds_mla"}, "kv_cache_dtype must be auto with dense layers"),
        (
            {"layers": {"dense": 1}, "max_num_batched_tokens": 4, "max_num_seqs": 5},
            "max_num_seqs must be at most max_num_batched_tokens 4, got 5",
        ),
        ({"layers": {"dense": 1}, "vllm": "0.1"}, "version must be 0.8 or later"),
    ],
)
def test_a_mistake_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError) as error:
        lab_args(wrong)
    assert error.value.label == "lab-shape"
    assert error.value.detail.startswith(message), error.value.detail
    assert "\n" not in str(error.value)
