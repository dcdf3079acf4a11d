"""The roof of the device, and the dtype that follows from it."""

from __future__ import annotations

import pytest
import torch

from orchestrator.engines.kernel_lab.roof import measure_roof
from tests.engines.kernel_lab.labs import CPU


def test_the_faster_product_decides_unless_a_dtype_is_given() -> None:
    roof, dtype = measure_roof(CPU, None)
    rates = {torch.bfloat16: roof.bfloat16_gflop_per_s, torch.float32: roof.float32_gflop_per_s}
    assert rates[dtype] == max(rates.values()) == roof.gflop_per_s
    assert roof.copy_gb_per_s > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_given_dtype_has_its_own_roof(dtype: torch.dtype) -> None:
    roof, chosen = measure_roof(CPU, dtype)
    assert chosen == dtype
    assert roof.gflop_per_s == (roof.bfloat16_gflop_per_s if dtype == torch.bfloat16 else roof.float32_gflop_per_s)
