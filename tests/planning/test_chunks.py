from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import (
    LAYER_TYPES,
    Chunk,
    area_limit,
    fixed_chunks,
    plan_prefill_array,
    plan_prefill_chunks,
    plan_prefill_tuples,
)
from tests.planning.vectors import vectors

LAYER: dict[str, Any] = {"compress_ratio": 4, "window": 128}
REQUESTS = st.lists(
    st.integers(1, 1 << 20).flatmap(lambda seq: st.tuples(st.just(seq), st.integers(1, seq))), max_size=40
)
LAYERS = st.sampled_from(list(LAYER_TYPES.values()))


def _limit_of(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "compress_ratio",
        "max_model_len",
        "window",
        "max_num_batched_tokens",
        "prefill_chunk_size",
        "has_compressed",
    )
    return {name: row[name] for name in names}


@pytest.mark.parametrize("row", vectors("dsv4_plan"), ids=lambda row: f"{len(row['seq_lens'])}-{row['area_limit']}")
def test_plans_equal_the_recorded_plans(row: dict[str, Any]) -> None:
    limit = area_limit(**_limit_of(row))
    assert limit == row["area_limit"]
    layer = {name: row[name] for name in ("compress_ratio", "window", "has_compressed")}
    plan = plan_prefill_chunks(row["seq_lens"], row["query_lens"], area_limit=limit, **layer)
    assert plan == [tuple(chunk) for chunk in row["plan"]]
    assert fixed_chunks(len(row["seq_lens"]), **_limit_of(row)) == [tuple(chunk) for chunk in row["fixed_le_023"]]


def test_the_published_example_needs_one_chunk_instead_of_three() -> None:
    # Pull request 45061: ten requests that the fixed chunks of 4 cut in three.
    sizes: dict[str, Any] = {"compress_ratio": 4, "max_model_len": 16_384, "window": 64, "max_num_batched_tokens": 4096}
    limit = area_limit(prefill_chunk_size=4, **sizes)
    assert [chunk[:2] for chunk in fixed_chunks(10, **sizes)] == [(0, 4), (4, 8), (8, 10)]
    plan = plan_prefill_chunks([8192] * 10, [32] * 10, compress_ratio=4, window=64, area_limit=limit)
    assert plan == [(0, 10, 2048, 2143)]


@pytest.mark.parametrize(
    ("name", "limit"), [("swaonly", 33_280), ("c4a", 164_352), ("c128a", 37_376), ("c1a", 557_568)]
)
def test_each_layer_type_has_its_limit(name: str, limit: int) -> None:
    kind = LAYER_TYPES[name]
    assert limit == area_limit(
        prefill_chunk_size=4,
        compress_ratio=kind.compress_ratio,
        has_compressed=kind.has_compressed,
        max_model_len=131_072,
        window=128,
        max_num_batched_tokens=8192,
    )


def test_a_length_that_the_ratio_does_not_divide_needs_one_row_more() -> None:
    sizes: dict[str, Any] = {"prefill_chunk_size": 1, "window": 1, "max_num_batched_tokens": 1}
    assert area_limit(compress_ratio=4, max_model_len=1001, **sizes) == 251 + 2
    assert fixed_chunks(1, compress_ratio=4, max_model_len=1001, window=1, max_num_batched_tokens=1) == [
        (0, 1, 251, 253)
    ]


@given(REQUESTS, LAYERS, st.integers(1, 256), st.integers(1, 5_000_000), st.sampled_from(["batch", "width", "optimal"]))
def test_a_plan_holds_each_request_once_within_the_limit(
    requests: list[tuple[int, int]], kind: Any, window: int, limit: int, order: str
) -> None:
    seq, query = [r[0] for r in requests], [r[1] for r in requests]
    plan = plan_prefill_chunks(
        seq,
        query,
        compress_ratio=kind.compress_ratio,
        has_compressed=kind.has_compressed,
        window=window,
        area_limit=limit,
        order=order,
    )
    permutation = range(len(seq)) if plan.permutation is None else plan.permutation.tolist()
    assert sorted(permutation) == list(range(len(seq)))
    assert [place for chunk in plan for place in range(chunk.start, chunk.end)] == list(range(len(seq)))
    for place, chunk in enumerate(plan):
        members = [permutation[i] for i in range(chunk.start, chunk.end)]
        deep = max(seq[i] // kind.compress_ratio if kind.has_compressed else 0 for i in members)
        wide = max(query[i] + min(seq[i] - query[i], window - 1) for i in members)
        assert chunk == (chunk.start, chunk.end, deep, deep + wide)
        assert chunk.area == len(members) * (deep + wide)
        assert (chunk.area > limit) == (place in plan.oversize)
        if chunk.area > limit:
            assert chunk.requests == 1
    assert plan.area == sum(chunk.area for chunk in plan)
    assert plan.cost(7) == 7 * len(plan) + plan.area


@given(REQUESTS, st.sampled_from([np.int32, np.int64, np.uint16, np.uint64, np.int8]), st.booleans())
def test_every_kind_of_array_gives_the_same_plan(requests: list[tuple[int, int]], dtype: Any, strided: bool) -> None:
    top = np.iinfo(dtype).max
    seq = [min(r[0], top) for r in requests]
    query = [min(r[1], s) for r, s in zip(requests, seq, strict=True)]
    plan = plan_prefill_chunks(seq, query, area_limit=100_000, **LAYER)
    arrays = np.array([seq, query], dtype)
    first, second = np.repeat(arrays, 2, axis=1)[:, ::2] if strided else arrays
    assert plan_prefill_chunks(first, second, area_limit=100_000, **LAYER) == plan
    assert plan_prefill_array(first, second, area_limit=100_000, **LAYER).tolist() == [list(chunk) for chunk in plan]
    exact = np.ascontiguousarray(first, np.int64), np.ascontiguousarray(second, np.int64)
    assert plan_prefill_tuples(*exact, 4, True, 128, 100_000) == plan


def test_an_oversize_request_is_planned_alone_and_flagged() -> None:
    plan = plan_prefill_chunks([70, 1_000_000, 70], [4, 200, 4], compress_ratio=4, window=64, area_limit=1792)
    assert plan == [(0, 1, 17, 84), (1, 2, 250_000, 250_263), (2, 3, 17, 84)]
    assert plan.oversize == [1]
    assert plan.permutation is None
    assert not plan.exact


def test_the_sum_may_equal_the_limit() -> None:
    assert len(plan_prefill_chunks([10] * 3, [10] * 3, compress_ratio=1, window=1, area_limit=30)) == 1
    assert len(plan_prefill_chunks([10] * 3, [10] * 3, compress_ratio=1, window=1, area_limit=29)) == 2


def test_no_requests_need_no_chunks() -> None:
    for order in ("batch", "width", "optimal"):
        assert plan_prefill_chunks([], [], area_limit=10, order=order, **LAYER) == []
    assert plan_prefill_array([], [], area_limit=10, **LAYER).shape == (0, 4)
    assert fixed_chunks(0, max_model_len=8, max_num_batched_tokens=8, **LAYER) == []


def test_a_layer_without_compressed_rows_may_have_ratio_zero() -> None:
    assert plan_prefill_chunks([9], [3], compress_ratio=0, window=4, area_limit=99) == [Chunk(0, 1, 0, 6)]


@pytest.mark.parametrize(
    ("seq", "query", "changes", "message"),
    [
        ([5, 0], [1, 0], {}, "query_lens must be at least 1, got 0 of a sequence of 0 at request 1"),
        ([5, 4], [1, -3], {}, "query_lens must be at least 1, got -3"),
        ([5, 4], [1, 5], {}, "query_lens must not exceed seq_lens, got 5 of a sequence of 4 at request 1"),
        ([5, 4], [1], {}, "query_lens must have the length of seq_lens, got 1 and 2"),
        ([5.0], [1], {}, "seq_lens must hold whole numbers"),
        ([True], [True], {"area_limit": 0}, "area_limit must be at least 1"),
        ([[5]], [[1]], {}, "seq_lens must have one dimension"),
        ([2**31], [1], {}, "seq_lens must hold whole numbers below 2..31, got 2147483648"),
        ([2**64], [1], {}, "seq_lens must hold whole numbers below 2..31"),
        ([5], [1], {"area_limit": 0}, "area_limit must be at least 1, got 0"),
        ([5], [1], {"area_limit": 9.5}, "area_limit must be a whole number, got 9.5"),
        ([5], [1], {"window": 0}, "window must be at least 1, got 0"),
        ([5], [1], {"compress_ratio": -4}, "compress_ratio must be at least 0, got -4"),
        ([5], [1], {"compress_ratio": 0, "has_compressed": True}, "compress_ratio of a layer with compressed rows"),
        ([5], [1], {"order": "best"}, "order must be one of 'batch', 'width', 'optimal', got 'best'"),
        ([5], [1], {"order": "optimal", "launch_rows": -1}, "launch_rows must be at least 0"),
    ],
)
@pytest.mark.parametrize("order", ["batch", "width", "optimal"])
def test_bad_input_is_named(seq: Any, query: Any, changes: dict[str, Any], message: str, order: str) -> None:
    arguments = {**LAYER, "area_limit": 1000, "order": order, **changes}
    with pytest.raises(ValueError, match=message):
        plan_prefill_chunks(seq, query, **arguments)


@pytest.mark.parametrize(
    "name", ["prefill_chunk_size", "compress_ratio", "max_model_len", "window", "max_num_batched_tokens"]
)
def test_a_bad_size_of_the_limit_is_named(name: str) -> None:
    sizes = {"prefill_chunk_size": 4, "max_model_len": 64, "max_num_batched_tokens": 8, **LAYER, name: -1}
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        area_limit(**sizes)
