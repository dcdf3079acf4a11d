"""Whether the lab's kernels on a device give what the plain path and the fp32 reference give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch

from benchmarks._lab_bench import BenchLayer
from benchmarks._mixes import Prefill, mixes
from orchestrator.engines.kernel_lab.args import CHUNK_ORDERS
from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.caches import BlockPool, PagedCache
from orchestrator.engines.kernel_lab.content import compressed_hashes
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels, TorchKernels, kernels_for
from orchestrator.engines.kernel_lab.reference import mla_attention, v4_attention
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows, RowFormat
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.planning import LAYER_TYPES

TOLERANCE: Final = {torch.bfloat16: 0.03, torch.float32: 1e-4}
"""Largest error of one query and head, relative to the length of what is expected (Euclidean norm)."""

SMALL: Final[dict[str, Any]] = {
    "heads": 3,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "head_dim": 80,
    "window": 9,
    "index_topk": 12,
    "max_model_len": 512,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
}
"""Odd sizes on purpose."""


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        error: Largest relative error, 0 for equal bits.
        limit: Of the error.
    """

    name: str
    dtype: str
    batches: int
    error: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the error is within its limit; NaN is not."""
        return self.error <= self.limit

    def row(self) -> dict[str, Any]:
        """All figures."""
        return {**asdict(self), "holds": self.holds}


def checks(device: torch.device, batches: int, *, shrink: int) -> Iterator[Check]:
    """All comparisons.

    Args:
        batches: Random batches of each.
        shrink: Of the lengths of the large ones, see :func:`benchmarks._mixes.mixes`.
    """
    yield from _gathers(device, batches)
    for dtype in TOLERANCE:
        for kind in LAYER_TYPES:
            yield from _v4_layer(kind, device, dtype, batches)
        for kind in ("dense", "sparse"):
            yield from _mla_layer(kind, device, dtype, batches)
    yield from _large_batches(device, shrink)


def _gathers(device: torch.device, batches: int) -> Iterator[Check]:
    formats: dict[str, RowFormat] = {
        "rows": PlainRows(512, torch.bfloat16),
        "rows of odd width": PlainRows(5, torch.bfloat16),
        "fp8 records": Fp8Rows(512, 64),
    }
    rng = np.random.default_rng(0)
    for name, rows in formats.items():
        unequal = 0
        for _ in range(batches):
            per_block = int(rng.integers(1, 65))
            pool = BlockPool(64, per_block, seed=1, device=device)
            cache = PagedCache(64, per_block, rows, device=device)
            content = torch.from_numpy(rng.standard_normal((64 * per_block, rows.width), dtype=np.float32))
            cache.flat.copy_(rows.encode(content.to(device, torch.bfloat16)))
            pieces, at = [], 1
            for _ in range(4):
                start, count = (int(value) for value in rng.integers(0, 300, 2))
                pieces.append(Piece(pool.allocate(16), start, count, at))
                at += count + 1
            results = []
            for kernels in (TorchKernels(device), kernels_for(device)):
                out = torch.full((at, rows.width), 7.0, dtype=torch.bfloat16, device=device)
                kernels.gather(cache, pieces, out)
                results.append(out)
            unequal += not torch.equal(*results)
        yield Check(f"gather of {name}, bits of the plain path", "bfloat16", batches, float(unequal), 0.0)


def _v4_layer(kind: str, device: torch.device, dtype: torch.dtype, batches: int) -> Iterator[Check]:
    lab = BenchLayer(kind, device, dtype, **SMALL)
    rng, error, unequal = np.random.default_rng(1), 0.0, 0
    for _ in range(batches):
        with lab.batch(_random_batch(rng), write=True) as batch:
            selected = lab.selection(batch)
            first: torch.Tensor | None = None
            for limit in (None, 1, int(rng.integers(1, 2000))):
                for order in CHUNK_ORDERS:
                    plan = lab.knobs(order=order, limit=limit).plan(lab.v4[0].kind, batch)
                    out = lab.v4_prefill(batch, plan, selected).clone()
                    first = out if first is None else first
                    unequal += not torch.equal(out, first)
            assert first is not None
            error = _worse(error, relative_error(first, _v4_reference(lab, batch, selected)))
        lab.manager.check_canaries()
    name = str(dtype).removeprefix("torch.")
    yield Check(f"{kind} layer, fp32 reference", name, batches, error, TOLERANCE[dtype])
    yield Check(f"{kind} layer, bits under every area limit and order", name, batches, float(unequal), 0.0)


def _mla_layer(kind: str, device: torch.device, dtype: torch.dtype, batches: int) -> Iterator[Check]:
    lab = BenchLayer(kind, device, dtype, **SMALL)
    # A context of 200 tokens is longer than the smallest: it is split.
    contexts = [lab.context(rows) for rows in (64, 128, 1024)]
    rng, error = np.random.default_rng(2), 0.0
    for _ in range(batches):
        with lab.batch(_random_batch(rng), write=True) as batch:
            wanted = _mla_reference(lab, batch)
            for context in contexts:
                error = _worse(error, relative_error(lab.mla_prefill(batch, context), wanted))
                context.manager.check_canaries()
    name = str(dtype).removeprefix("torch.")
    yield Check(f"{kind} layer under three caps, fp32 reference", name, batches, error, TOLERANCE[dtype])


def _large_batches(device: torch.device, shrink: int) -> Iterator[Check]:
    """The batches that are timed, with the sizes of the model, against the plain path on the same device."""
    dtype = torch.bfloat16
    for mix, (prefills,) in mixes(1, shrink=shrink).items():
        outputs = []
        for kernels in (TorchKernels(device), kernels_for(device)):
            lab = _large_layer(device, dtype, kernels, prefills, shrink)
            with lab.batch(prefills, write=True) as batch:
                plan = lab.knobs().plan(lab.v4[0].kind, batch)
                outputs.append(lab.v4_prefill(batch, plan, lab.selection(batch)).clone())
        error = relative_error(outputs[1], outputs[0])
        yield Check(f"c4a layer, {mix}, plain path", "bfloat16", 1, error, TOLERANCE[dtype])


def _large_layer(
    device: torch.device, dtype: torch.dtype, kernels: Kernels, prefills: list[Prefill], shrink: int
) -> BenchLayer:
    return BenchLayer(
        "c4a",
        device,
        dtype,
        kernels=kernels,
        max_model_len=131_072 // shrink,
        max_num_batched_tokens=8192 // shrink,
        max_num_seqs=len(prefills),
        num_kv_blocks=sum(-(-prefill.seq_len // 256) for prefill in prefills),
    )


def _random_batch(rng: np.random.Generator) -> list[Prefill]:
    found = []
    for _ in range(int(rng.integers(1, 5))):
        query = int(rng.integers(1, 60))
        found.append(Prefill(int(rng.integers(0, 200)) + query, query))
    return found


def _v4_reference(lab: BenchLayer, batch: Batch, selected: torch.Tensor) -> torch.Tensor:
    (layer,) = lab.v4
    outputs = []
    with torch.inference_mode():
        queries = layer.queries(batch).cpu()
        for member in batch.members:
            own = slice(member.first, member.first + member.query_len)
            hashes = member.hashes[: member.seq_len]
            outputs.append(
                v4_attention(
                    queries[own],
                    member.context_len,
                    layer.rows(hashes).cpu(),
                    layer.rows(compressed_hashes(hashes, layer.kind.compress_ratio)).cpu(),
                    selected[own].cpu(),
                    window=lab.args.window,
                    sink=layer.sink.cpu(),
                )
            )
    return torch.cat(outputs)


def _mla_reference(lab: BenchLayer, batch: Batch) -> torch.Tensor:
    (layer,) = lab.mla
    topk = layer.shape.index_topk
    selected = None if topk is None else select_rows(batch.positions.cpu(), ratio=1, topk=topk)
    outputs = []
    with torch.inference_mode():
        queries = layer.queries(batch).cpu()
        for member in batch.members:
            own = slice(member.first, member.first + member.query_len)
            outputs.append(
                mla_attention(
                    queries[own],
                    member.context_len,
                    layer.rows(member.hashes[: member.seq_len]).cpu(),
                    layer.key_weight.cpu(),
                    layer.value_weight.cpu(),
                    kv_lora_rank=lab.args.kv_lora_rank,
                    selected=None if selected is None else selected[own],
                )
            )
    return torch.cat(outputs)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Over all queries and heads: length of the difference relative to that of what was expected."""
    got, expected = got.float().cpu(), expected.float().cpu()
    lengths = expected.norm(dim=-1)
    # Where what is expected is next to nothing, its length says nothing about the size of the terms.
    error = (got - expected).norm(dim=-1) / lengths.clamp_min(float(lengths.mean()) * 0.1 + 1e-30)
    return float(error.max())


def _worse(error: float, other: float) -> float:
    """The larger one; NaN is larger than all."""
    return other if not other <= error else error
