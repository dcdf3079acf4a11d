"""What the device can do at best: a copy in the manner of STREAM and a product of square matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

_COPY_BYTES: Final = 64 * 1024 * 1024
"""Source and target together are four times the last-level cache of a core complex, so the copy goes to memory."""

_SIDE: Final = 512
_REPEATS: Final = 20
"""Short runs and many of them: on a machine that does other work too, some are not interrupted."""


@dataclass(frozen=True, kw_only=True)
class Roof:
    """Measured at start, with the threads that the engine uses.

    Attributes:
        copy_gb_per_s: Gigabytes (10^9) a second read and written by a copy that fits into no cache.
        gflop_per_s: Gigaflops a second of a product in the engine's dtype.
        bfloat16_gflop_per_s: The same in bf16.
        float32_gflop_per_s: The same in fp32.
    """

    copy_gb_per_s: float
    gflop_per_s: float
    bfloat16_gflop_per_s: float
    float32_gflop_per_s: float


def measure_roof(device: torch.device, dtype: torch.dtype | None) -> tuple[Roof, torch.dtype]:
    """The roof and the dtype to compute in: the one that is given, else the one with the faster product.

    Takes about 0.2 s on one core. The fastest run counts.
    """
    source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copy_s = _best(lambda: target.copy_(source), device)
    rates = {kind: _product_rate(kind, device) for kind in (torch.bfloat16, torch.float32)}
    chosen = dtype or max(rates, key=lambda kind: rates[kind])
    roof = Roof(
        copy_gb_per_s=2 * _COPY_BYTES / copy_s / 1e9,
        gflop_per_s=rates[chosen],
        bfloat16_gflop_per_s=rates[torch.bfloat16],
        float32_gflop_per_s=rates[torch.float32],
    )
    return roof, chosen


def _product_rate(dtype: torch.dtype, device: torch.device) -> float:
    left = torch.ones(_SIDE, _SIDE, dtype=dtype, device=device)
    right, out = torch.ones_like(left), torch.empty_like(left)
    return 2 * _SIDE**3 / _best(lambda: torch.mm(left, right, out=out), device) / 1e9


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few runs, after one that does not count."""
    times = []
    for _ in range(_REPEATS + 1):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return min(times[1:])
