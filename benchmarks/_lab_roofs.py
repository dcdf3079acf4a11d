"""What the lab's kernels reach, beside what the device reaches at best: copies and products of matrices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import torch

from benchmarks._lab_bench import BenchLayer, blocks_for, fastest
from benchmarks._mixes import Prefill
from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.caches import BlockPool, PagedCache
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows, RowFormat
from orchestrator.engines.kernel_lab.workspace import round_up
from orchestrator.measurement.stats import RatioInterval, paired_ratio

Rate = Callable[[], float]
"""Measures a rate once: GB/s for copies, GFLOP/s for products."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much work a rate is measured over.

    Attributes:
        bytes: Of the source of a copy, of the rows of a gather; more than the last cache holds.
        side: Of the square matrices of a product.
        queries: New tokens of dense attention.
        context: Cached tokens before them.
        workspace_rows: Of its context workspace.
        heads: Attention heads.
        repeats: Runs of which the fastest counts.
    """

    bytes: int
    side: int
    queries: int
    context: int
    workspace_rows: int
    heads: int = 16
    repeats: int = 5


CPU_SIZES: Final = Sizes(bytes=64 << 20, side=512, queries=1024, context=15_360, workspace_rows=8192, repeats=3)
GPU_SIZES: Final = Sizes(bytes=1 << 30, side=8192, queries=8192, context=65_536, workspace_rows=32_768, repeats=10)
QUICK_SIZES: Final = Sizes(bytes=8 << 20, side=256, queries=128, context=1024, workspace_rows=512, repeats=2)


_MOST_KEYS: Final = 16_384
"""Of attention alone: where torch has no fused kernel for these widths, it stores every score."""


@dataclass
class Reached:
    """A rate and its roof, one entry a turn.

    Attributes:
        bound: Least part of the roof that is asked for; None for a figure without one.
    """

    name: str
    unit: str
    bound: float | None
    rates: list[float] = field(default_factory=list)
    roofs: list[float] = field(default_factory=list)

    @property
    def part(self) -> RatioInterval:
        """Rate over roof."""
        return paired_ratio(self.rates, self.roofs)

    def row(self) -> dict[str, Any]:
        """All figures."""
        part = self.part
        return {
            "name": self.name,
            "unit": self.unit,
            "rate": median(self.rates),
            "roof": median(self.roofs),
            "part": part.ratio,
            "part_low": part.low,
            "part_high": part.high if part.dof else None,
            "bound": self.bound,
            "turns": part.pairs,
        }


def measure(cases: Sequence[tuple[Reached, Rate, Rate]], turns: int, coin: random.Random) -> list[Reached]:
    """Measure each rate next to its roof, in an order that a coin decides in every turn."""
    for _ in range(turns):
        for reached, rate, roof in cases:
            sides = [(reached.rates, rate), (reached.roofs, roof)]
            coin.shuffle(sides)
            for found, side in sides:
                found.append(side())
    return [reached for reached, _, _ in cases]


def all_cases(
    device: torch.device, dtype: torch.dtype, kernels: Kernels, sizes: Sizes
) -> list[tuple[Reached, Rate, Rate]]:
    """Gathers against the copy; dense attention, the lab's and torch's, against the product."""
    copy, product = copy_rate(device, kernels, sizes), product_rate(device, dtype, kernels, sizes)
    cases: list[tuple[Reached, Rate, Rate]] = []
    formats: list[tuple[str, RowFormat, int, float | None]] = [
        ("gather, MLA latents, 64 rows a block", PlainRows(576, torch.bfloat16), 64, 0.7),
        ("gather, C4A rows, 64 a block", PlainRows(512, torch.bfloat16), 64, 0.7),
        ("gather, C128A rows, 2 a block", PlainRows(512, torch.bfloat16), 2, 0.7),
        ("gather, C4A fp8 records, unpacked", Fp8Rows(512, 64), 64, None),
    ]
    for name, rows, per_block, bound in formats:
        cases.append((Reached(name, "GB/s", bound), gather_rate(device, kernels, sizes, rows, per_block), copy))
    for name, context, bound in (
        ("dense MLA, new tokens with context", sizes.context, 0.6),
        ("dense MLA, new tokens alone", 0, 0.6),
    ):
        cases.append((Reached(name, "GFLOP/s", bound), dense_rate(device, dtype, kernels, sizes, context), product))
    lab, theirs = attention_rates(device, dtype, kernels, sizes)
    cases.append((Reached("attention over keys of all heads", "GFLOP/s", None), lab, product))
    cases.append((Reached("the same, torch's scaled_dot_product_attention", "GFLOP/s", None), theirs, product))
    return cases


def copy_rate(device: torch.device, kernels: Kernels, sizes: Sizes) -> Rate:
    """Gigabytes (10^9) a second that a copy reads and writes."""
    source = torch.zeros(sizes.bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return lambda: 2 * sizes.bytes / fastest(lambda: target.copy_(source), kernels, sizes.repeats) / 1e9


def product_rate(device: torch.device, dtype: torch.dtype, kernels: Kernels, sizes: Sizes) -> Rate:
    """Gigaflops a second of a product of square matrices."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(sizes.side, sizes.side, generator=generator).to(device, dtype) for _ in range(2))
    out = torch.empty_like(left)
    # The product is short: as many runs as the other side's work would take.
    repeats = 4 * sizes.repeats
    return lambda: 2 * sizes.side**3 / fastest(lambda: torch.mm(left, right, out=out), kernels, repeats) / 1e9


def gather_rate(device: torch.device, kernels: Kernels, sizes: Sizes, rows: RowFormat, per_block: int) -> Rate:
    """Gigabytes a second that a gather reads and writes: four requests, whose blocks lie in random places."""
    row_bytes = rows.stored_width * rows.stored_dtype.itemsize
    count = sizes.bytes // row_bytes // (4 * per_block) * per_block
    blocks = 4 * count // per_block
    cache = PagedCache(blocks, per_block, rows, device=device)
    written = torch.randn(per_block, rows.width, generator=torch.Generator().manual_seed(1)).to(device, torch.bfloat16)
    cache.by_block.copy_(rows.encode(written).view(1, -1).expand(blocks, -1))
    pool = BlockPool(blocks, per_block, seed=2, device=device)
    pieces = [Piece(pool.allocate(count // per_block), 0, count, place * count) for place in range(4)]
    out = torch.zeros(4 * count, rows.width, dtype=torch.bfloat16, device=device)
    moved = 4 * count * (row_bytes + rows.width * out.element_size())
    return lambda: moved / fastest(lambda: kernels.gather(cache, pieces, out), kernels, sizes.repeats) / 1e9


def dense_rate(device: torch.device, dtype: torch.dtype, kernels: Kernels, sizes: Sizes, context: int) -> Rate:
    """Gigaflops a second of a dense layer's products and softmax: expansion, attention and merge.

    What the layer needed counts as work: not padding, and of a causal square only what is seen.
    """
    prefills = [Prefill(context + sizes.queries, sizes.queries)]
    lab = BenchLayer(
        "dense",
        device,
        dtype,
        kernels=kernels,
        heads=sizes.heads,
        max_model_len=context + sizes.queries,
        max_num_batched_tokens=max(2048, sizes.queries),
        max_num_seqs=1,
        num_kv_blocks=blocks_for([prefills], 64),
    )
    lab.fill()
    workspace = lab.context(sizes.workspace_rows)

    def rate() -> float:
        with lab.batch(prefills) as batch:
            return max(_attended(lab, batch, workspace) for _ in range(sizes.repeats + 1))

    return rate


def _attended(lab: BenchLayer, batch: Batch, workspace: Any) -> float:
    lab.tally.reset()
    lab.mla_prefill(batch, workspace)
    return lab.tally.flops / lab.tally.seconds["attend"] / 1e9


def attention_rates(device: torch.device, dtype: torch.dtype, kernels: Kernels, sizes: Sizes) -> tuple[Rate, Rate]:
    """Gigaflops a second of attention alone, with keys of 192 and values of 128 elements: the lab's and torch's."""
    count, length = round_up(sizes.queries, 64), round_up(min(max(sizes.context, 64), _MOST_KEYS), 64)
    generator = torch.Generator().manual_seed(3)

    def normal(rows: int, width: int) -> torch.Tensor:
        return torch.randn(sizes.heads, rows, width, generator=generator).to(device, dtype)

    queries, keys, values = normal(count, 192), normal(length, 192), normal(length, 128)
    flops = 2 * count * length * sizes.heads * (192 + 128)
    scaled, keys_t = queries * (1.44 / 192**0.5), keys.transpose(1, 2).contiguous()

    def lab() -> float:
        with torch.inference_mode():
            return flops / fastest(lambda: kernels.attend(scaled, keys_t, values, length), kernels, sizes.repeats) / 1e9

    def theirs() -> float:
        batched = [tensor.unsqueeze(0) for tensor in (queries, keys, values)]
        with torch.inference_mode():
            call = torch.nn.functional.scaled_dot_product_attention
            return flops / fastest(lambda: call(*batched), kernels, sizes.repeats) / 1e9

    return lab, theirs
