from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import plan_context_chunks, workspace_alignment
from tests.planning.vectors import dcp_sizes, vectors

CONTEXTS = st.lists(st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 20_000)), max_size=24)


@pytest.mark.parametrize("row", vectors("ctx_plan"), ids=lambda row: f"{len(row['context_lens'])}-{row['workspace']}")
def test_plans_equal_the_recorded_plans(row: dict[str, Any]) -> None:
    sizes = {"workspace_rows": row["workspace"], **dcp_sizes(row)}
    plan = plan_context_chunks(row["context_lens"], **sizes)
    assert [
        {
            "req": [chunk.request_start, chunk.request_end],
            "starts": chunk.starts,
            "lens": chunk.lengths,
            "cont": chunk.is_continuation,
            "rows": chunk.rows,
        }
        for chunk in plan
    ] == row["plan"]
    if row["old_chunks"]:
        share, count = row["old_chunks"]
        old = plan_context_chunks(row["context_lens"], rule="0.11", **sizes)
        assert len(old) == count
        assert all(chunk.starts == [place * share] * len(row["context_lens"]) for place, chunk in enumerate(old))


def test_the_published_example_needs_one_chunk_instead_of_thirty() -> None:
    # Pull request 50613: one long context among 31 of one block.
    sizes: dict[str, Any] = {"workspace_rows": 65_536, "block_size": 16}
    contexts = [60_000] + [16] * 31
    assert len(plan_context_chunks(contexts, rule="0.11", **sizes)) == 30
    (chunk,) = plan_context_chunks(contexts, **sizes)
    assert chunk.rows == 60_496


@given(CONTEXTS, st.integers(1, 64), st.integers(1, 30), st.sampled_from([1, 2, 3, 8]), st.data())
def test_a_plan_covers_each_context_once_within_the_budget(
    contexts: list[int], block: int, steps: int, dcp: int, data: st.DataObject
) -> None:
    run = data.draw(st.sampled_from([n for n in range(1, block + 1) if block % n == 0])) if dcp > 1 else 1
    step = workspace_alignment(block_size=block, dcp=dcp, interleave=run)
    rows = step * steps + data.draw(st.integers(0, step - 1))
    plan = plan_context_chunks(contexts, workspace_rows=rows, block_size=block, dcp=dcp, interleave=run)
    done = [0] * len(contexts)
    for chunk in plan:
        assert 0 < chunk.rows <= rows // dcp
        assert chunk.rows == sum(-(-length // (dcp * run)) * run for length in chunk.lengths)
        assert chunk.is_continuation == (chunk.starts[0] > 0)
        assert len(chunk.starts) == len(chunk.lengths) == chunk.request_end - chunk.request_start
        for place, (start, length) in enumerate(zip(chunk.starts, chunk.lengths, strict=True)):
            request = chunk.request_start + place
            assert start == done[request]
            assert start % step == 0
            assert length > 0
            done[request] += length
    assert done == contexts
    # What the compiled loop allocates; it would write beyond without a word.
    largest = rows // dcp // (step // dcp) * step
    assert len(plan) <= len(plan.starts) <= 2 * len(contexts) + sum(contexts) // largest


@given(CONTEXTS, st.sampled_from([1, 2]))
def test_the_even_split_covers_each_context_once(contexts: list[int], dcp: int) -> None:
    sizes: dict[str, Any] = {"workspace_rows": 65_536, "block_size": 64, "dcp": dcp, "interleave": 16}
    plan = plan_context_chunks(contexts, rule="0.11", **sizes)
    done = [0] * len(contexts)
    for chunk in plan:
        assert (chunk.request_start, chunk.request_end) == (0, len(contexts))
        for request, (start, length) in enumerate(zip(chunk.starts, chunk.lengths, strict=True)):
            assert length == 0 or start == done[request]
            done[request] += length
        if dcp == 1:
            assert chunk.rows == sum(chunk.lengths) <= 65_536
    assert done == contexts


@given(CONTEXTS, st.sampled_from([np.int32, np.int64, np.uint64, np.uint16]), st.booleans())
def test_every_kind_of_array_gives_the_same_plan(contexts: list[int], dtype: Any, strided: bool) -> None:
    array = np.repeat(np.array(contexts, dtype), 2)[::2] if strided else np.array(contexts, dtype)
    sizes: dict[str, Any] = {"workspace_rows": 1024, "block_size": 16}
    assert plan_context_chunks(array, **sizes) == plan_context_chunks(contexts, **sizes)


def test_a_request_without_context_closes_the_chunk() -> None:
    # As in vLLM: requests of a chunk are neighbours, so new prompts between old ones cost chunks that the even split
    # of the releases before did not need.
    sizes: dict[str, Any] = {"workspace_rows": 1024, "block_size": 16}
    assert [chunk[:2] for chunk in plan_context_chunks([16, 0, 16, 0, 16], **sizes)] == [(0, 1), (2, 3), (4, 5)]
    assert len(plan_context_chunks([16, 0, 16, 0, 16], rule="0.11", **sizes)) == 1
    assert len(plan_context_chunks([16, 16, 16, 0, 0], **sizes)) == 1


def test_a_plan_is_a_sequence_of_chunks() -> None:
    plan = plan_context_chunks([2048, 0, 32], workspace_rows=1024, block_size=16)
    chunks = list(plan)
    assert len(plan) == len(chunks) == 3
    assert plan[0] == chunks[0] == (0, 1, [0], [1024], 1024, False)
    assert plan[-1] == chunks[2] == (2, 3, [0], [32], 32, False)
    assert plan[1:] == chunks[1:]
    assert chunks[1].is_continuation
    assert plan != chunks
    assert "ContextChunk(request_start=0" in repr(plan)
    with pytest.raises(IndexError):
        plan[3]


def test_pieces_need_no_alignment_where_the_gather_does_not() -> None:
    sizes: dict[str, Any] = {"workspace_rows": 100, "block_size": 64, "align_to_block": False}
    assert [chunk.lengths for chunk in plan_context_chunks([150], **sizes)] == [[100], [50]]
    sharded = plan_context_chunks([150], dcp=2, interleave=4, **sizes)
    assert [(chunk.lengths, chunk.rows) for chunk in sharded] == [([96], 48), ([54], 28)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_lens": [5, -1]}, "context_lens must be at least 0, got -1 at request 1"),
        ({"context_lens": [2**31]}, "context_lens must hold whole numbers below 2..31, got 2147483648"),
        ({"context_lens": [1.5]}, "context_lens must hold whole numbers"),
        ({"workspace_rows": 63}, "workspace_rows must hold one aligned step of 64 rows, got 63"),
        ({"workspace_rows": 64.0}, "workspace_rows must be a whole number, got 64.0"),
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"dcp": 2, "interleave": 48}, "interleave must divide block_size"),
        ({"rule": "newest"}, "rule must be one of"),
        (
            {"context_lens": [1] * 3, "rule": "0.11"},
            "workspace_rows must give each of 3 requests a block of 64, got 128",
        ),
        ({"dcp": 3, "rule": "0.11"}, "workspace_rows must give each request a multiple of dcp=3 rows, got 128"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"context_lens": [100], "workspace_rows": 128, "block_size": 64, **changes}
    plan_context_chunks([100], workspace_rows=64, block_size=64)
    with pytest.raises(ValueError, match=message):
        plan_context_chunks(arguments.pop("context_lens"), **arguments)
