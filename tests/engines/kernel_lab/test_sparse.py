"""Sparse attention with sinks over the workspace rows that indices name, against the same written down directly."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab import sparse
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.reference import attention_of_one
from orchestrator.engines.kernel_lab.sparse import QuerySpan, SparseCall, attend_latent, sparse_attention
from orchestrator.engines.kernel_lab.workspace import Scratch
from tests.engines.kernel_lab.labs import TOLERANCE, largest_error

DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])


def make_call(
    counts: list[int], heads: int, rows: int, most: int, dtype: torch.dtype, *, width: int = 20, seed: int = 0
) -> SparseCall:
    """One request for each count; every query names its own random choice of its request's rows."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    total = sum(counts)
    indices = torch.full((total, most), -1, dtype=torch.int32)
    lengths = torch.randint(1, min(most, rows) + 1, (total,), generator=generator).to(torch.int32)
    spans, at = [], 0
    for place, count in enumerate(counts):
        for query in range(at, at + count):
            own = torch.randperm(rows, generator=generator)[: lengths[query]] + place * rows
            indices[query, : lengths[query]] = own.to(torch.int32)
        # The queries of the last request come first in the step, as when a plan reorders them.
        spans.append(QuerySpan(total - at - count, count, at, place))
        at += count
    return SparseCall(
        queries=normal(total, heads, width).to(dtype),
        rows=normal(len(counts), rows, width).to(dtype),
        indices=indices,
        lengths=lengths,
        spans=spans,
        sink=normal(heads) * 2,
        out=torch.full((total, heads, width), math.nan, dtype=dtype),
    )


def expected(call: SparseCall) -> torch.Tensor:
    flat = call.rows.view(-1, call.rows.shape[2])
    out = torch.empty(call.out.shape)
    for span in call.spans:
        for number in range(span.count):
            rows = flat[call.indices[span.index + number, : call.lengths[span.index + number]].long()]
            out[span.query + number] = attention_of_one(call.queries[span.query + number], rows, rows, call.sink)
    return out


@DTYPES
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    heads=st.integers(1, 4),
    rows=st.integers(1, 90),
    most=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_each_query_attends_to_what_it_names(
    counts: list[int], heads: int, rows: int, most: int, seed: int, dtype: torch.dtype
) -> None:
    call = make_call(counts, heads, rows, most, dtype, seed=seed)
    sparse_attention(call, Scratch())
    assert largest_error(call.out, expected(call)) < TOLERANCE[dtype]


@DTYPES
def test_many_tiles_of_one_request(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_TILE_ROWS", 32)
    call = make_call([150, 3], 4, 200, 60, dtype)
    sparse_attention(call, Scratch())
    assert largest_error(call.out, expected(call)) < TOLERANCE[dtype]


@DTYPES
def test_a_score_beyond_the_range_of_the_sample(dtype: torch.dtype) -> None:
    """A row that only some queries name has scores of hundreds; others do not see it and must not feel it."""
    call = make_call([40], 3, 60, 30, dtype)
    call.rows[0, 17] = (call.queries[20, 1].float() * 20).to(dtype)
    named = (call.indices == 17).any(1)
    assert 0 < int(named.sum()) < 40
    sparse_attention(call, Scratch())
    assert largest_error(call.out, expected(call)) < TOLERANCE[dtype]


@DTYPES
def test_a_sink_can_take_nearly_all(dtype: torch.dtype) -> None:
    call = make_call([5], 2, 10, 4, dtype)
    call.sink[:] = 300.0
    sparse_attention(call, Scratch())
    assert float(call.out.abs().max()) < 1e-6
    call.sink[:] = -1e4
    sparse_attention(call, Scratch())
    assert largest_error(call.out, expected(call)) < TOLERANCE[dtype]


@DTYPES
@given(heads=st.integers(1, 5), count=st.integers(1, 80), value=st.integers(8, 20), has_sink=st.booleans())
def test_a_decode_step(heads: int, count: int, value: int, has_sink: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(count)
    queries = torch.randn(heads, 20, generator=generator).to(dtype)
    rows = torch.randn(count, 20, generator=generator).to(dtype)
    sink = torch.randn(heads, generator=generator) if has_sink else None
    out, lse = attend_latent(queries, rows, value, sink=sink)
    assert largest_error(out, attention_of_one(queries, rows, rows[:, :value], sink)) < TOLERANCE[dtype]
    scores = queries.float() @ rows.float().t() * math.log(2.0)
    assert torch.allclose(
        lse, torch.logsumexp(scores, 1) / math.log(2.0), atol=0.05 if dtype == torch.bfloat16 else 1e-4
    )


def test_wrong_shapes_are_one_line() -> None:
    call = make_call([5], 2, 10, 4, torch.float32)
    short = SparseCall(call.queries, call.rows[..., :7], call.indices, call.lengths, call.spans, call.sink, call.out)
    with pytest.raises(LabError, match=r"^lab-shape: rows must have shape \(any, any, 20\), got \(1, 10, 7\)$"):
        sparse_attention(short, Scratch())
