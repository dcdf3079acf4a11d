"""Run by ``test_triton_kernels.py`` with ``TRITON_INTERPRET=1``; on a GPU ``benchmarks/gpu`` compares both paths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.caches import BlockPool, PagedCache
from orchestrator.engines.kernel_lab.chunking import ChunkKnobs
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.gather import Piece, gather
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows, RowFormat
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.engines.kernel_lab.triton_kernels import TritonKernels
from orchestrator.engines.kernel_lab.workspace import Scratch
from tests.engines.kernel_lab.labs import CPU, TOLERANCE, Lab, largest_error
from tests.engines.kernel_lab.test_sparse import expected, make_call

# The interpreter multiplies the bit patterns of bfloat16 numbers, so float16 stands in for them.
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
PIECES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=25)
@given(PIECES, st.integers(1, 9), st.sampled_from(["plain", "odd", "fp8"]))
def test_a_gather_has_the_bits_of_the_plain_one(pieces: list[tuple[int, int]], per_block: int, kind: str) -> None:
    formats: dict[str, RowFormat] = {
        "plain": PlainRows(80, torch.bfloat16),
        "odd": PlainRows(5, torch.bfloat16),
        "fp8": Fp8Rows(80, 16),
    }
    rows = formats[kind]
    pool = BlockPool(200, per_block, seed=1)
    cache = PagedCache(200, per_block, rows)
    filled = torch.randn(cache.flat.shape[0], rows.width, generator=torch.Generator().manual_seed(2))
    cache.flat.copy_(rows.encode(filled.to(torch.bfloat16)))
    described, at = [], 1
    for start, count in pieces:
        # A table of fewer blocks than rows is a ring.
        described.append(Piece(pool.allocate(max(1, 30 // per_block)), start, count, at))
        at += count + 1
    got, wanted = (torch.full((at, rows.width), 7.0, dtype=torch.bfloat16) for _ in range(2))
    gather(cache, described, wanted, Scratch())
    TritonKernels(CPU).gather(cache, described, got)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize(("to", "count"), [(-1, 2), (9, 2)])
def test_a_piece_that_does_not_fit_is_one_clear_line(to: int, count: int) -> None:
    cache = PagedCache(4, 4, PlainRows(8, torch.float32))
    piece = Piece(BlockPool(4, 4, seed=0).allocate(2), 0, count, to)
    with pytest.raises(LabError, match=r"lab-shape: rows .* do not fit into 10 workspace rows"):
        TritonKernels(CPU).gather(cache, [piece], torch.zeros(10, 8))


@DTYPES
@pytest.mark.parametrize(("heads", "width"), [(3, 20), (16, 64), (40, 32)])
def test_sparse_attention_equals_its_reference(dtype: torch.dtype, heads: int, width: int) -> None:
    call = make_call([3, 1, 6], heads, 70, 50, dtype, width=width)
    TritonKernels(CPU).sparse_attention(call)
    assert largest_error(call.out, expected(call)) < (TOLERANCE[dtype] if dtype == torch.float32 else 0.01)


@pytest.mark.parametrize("kind", ["swaonly", "c1a", "c4a", "c128a"])
def test_a_layer_equals_its_reference_with_the_same_bits_under_every_limit(kind: str) -> None:
    lab = Lab(kind, torch.float32)
    (layer,) = lab.v4
    layer._kernels = TritonKernels(CPU)
    batch = lab.batch([(150, 3), (0, 9), (33, 5)])
    topk = layer.shape.topk_of(layer.kind)
    selected = torch.empty(batch.tokens, 0, dtype=torch.int32)
    if topk:
        selected = select_rows(batch.positions, ratio=layer.kind.compress_ratio, topk=topk)
    outputs = []
    for limit, order in ((None, "batch"), (60, "batch"), (60, "optimal"), (None, "fixed")):
        knobs = ChunkKnobs(
            max_model_len=512,
            window=9,
            max_num_batched_tokens=256,
            prefill_chunk_size=4,
            prefill_area_limit=limit,
            order=order,
        )
        with torch.inference_mode():
            outputs.append(layer.prefill(batch, knobs.plan(layer.kind, batch), selected, lab.tally).clone())
    lab.manager.check_canaries()
    assert largest_error(outputs[0], lab.v4_reference(batch, selected)) < TOLERANCE[torch.float32]
    assert all(torch.equal(output, outputs[0]) for output in outputs[1:])
