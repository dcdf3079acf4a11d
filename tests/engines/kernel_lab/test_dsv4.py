"""DeepSeek-V4 layers: any chunking of a batch gives what an unchunked fp32 reference gives, and the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab import sparse
from orchestrator.engines.kernel_lab.args import CHUNK_ORDERS
from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.chunking import ChunkKnobs
from orchestrator.engines.kernel_lab.dsv4 import combine_indices, gather_len
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LAYER_TYPES, Chunk, ChunkPlan
from tests.engines.kernel_lab.labs import BATCHES, TOLERANCE, Lab, largest_error

KINDS = tuple(LAYER_TYPES)
LIMITS = st.none() | st.integers(1, 2000)
Lengths = Sequence[tuple[int, int]]


@cache
def lab(kind: str, dtype: torch.dtype, kv_cache_dtype: str = "auto") -> Lab:
    """One lab for all examples of a kind: its tables take longer than an example."""
    return Lab(kind, dtype, kv_cache_dtype=kv_cache_dtype)


def knobs(one: Lab, *, limit: int | None = None, order: str = "batch") -> ChunkKnobs:
    args = one.args
    return ChunkKnobs(
        max_model_len=args.max_model_len,
        window=args.window,
        max_num_batched_tokens=args.max_num_batched_tokens,
        prefill_chunk_size=4,
        prefill_area_limit=limit,
        order=order,
        launch_rows=30,
    )


def selection(one: Lab, batch: Batch) -> torch.Tensor:
    (layer,) = one.v4
    topk = layer.shape.topk_of(layer.kind)
    if topk == 0:
        return torch.empty(batch.tokens, 0, dtype=torch.int32)
    return select_rows(batch.positions, ratio=layer.kind.compress_ratio, topk=topk)


def prefill(
    one: Lab, batch: Batch, *, limit: int | None = None, order: str = "batch"
) -> tuple[ChunkPlan, torch.Tensor]:
    (layer,) = one.v4
    plan = knobs(one, limit=limit, order=order).plan(layer.kind, batch)
    with torch.inference_mode():
        out = layer.prefill(batch, plan, selection(one, batch), one.tally)
    one.manager.check_canaries()
    return plan, out.clone()


def check_equals_reference(one: Lab, lengths: Lengths, seed: int, limits: Sequence[int | None]) -> None:
    """Within the tolerance of the reference, and the same bits under every limit and order."""
    batch = one.batch(lengths, seed)
    try:
        _, first = prefill(one, batch)
        assert largest_error(first, one.v4_reference(batch, selection(one, batch))) < TOLERANCE[one.dtype]
        for limit in limits:
            for order in CHUNK_ORDERS:
                assert torch.equal(prefill(one, batch, limit=limit, order=order)[1], first), (limit, order)
    finally:
        one.free(batch)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(lengths=BATCHES, seed=st.integers(0, 1000), limits=st.lists(LIMITS, min_size=1, max_size=2))
def test_output_equals_the_reference_under_every_area_limit(
    lengths: Lengths, seed: int, limits: list[int | None], kind: str, dtype: torch.dtype
) -> None:
    check_equals_reference(lab(kind, dtype), lengths, seed, limits)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=1000)
@given(lengths=BATCHES, seed=st.integers(0, 10**6), limits=st.lists(LIMITS, min_size=1, max_size=2))
def test_output_equals_the_reference_for_many_batches(
    lengths: Lengths, seed: int, limits: list[int | None], kind: str, dtype: torch.dtype
) -> None:
    check_equals_reference(lab(kind, dtype), lengths, seed, limits)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5)
@given(lengths=BATCHES, seed=st.integers(0, 1000))
def test_a_packed_cache_gives_what_its_rows_unpacked_give(lengths: Lengths, seed: int, kind: str) -> None:
    check_equals_reference(lab(kind, torch.bfloat16, "fp8_ds_mla"), lengths, seed, [40])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(lengths=st.lists(st.tuples(st.integers(0, 200), st.just(1)), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_a_decode_step_equals_the_reference(lengths: Lengths, seed: int, kind: str) -> None:
    one = lab(kind, torch.float32)
    batch = one.batch(lengths, seed)
    with torch.inference_mode():
        out = one.v4[0].decode(batch)
    assert largest_error(out, one.v4_reference(batch, selection(one, batch))) < TOLERANCE[torch.float32]
    one.free(batch)


def test_a_request_wider_than_the_limit_is_alone_and_stays_inside_the_workspace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``prefill`` looks at the canaries. Tiles of the kernel are small here, so that a request has several."""
    monkeypatch.setattr(sparse, "_TILE_ROWS", 96)
    one = lab("c4a", torch.bfloat16)
    lengths = [(250, 100), (3, 2), (0, 30), (200, 120)]
    batch = one.batch(lengths)
    plan, out = prefill(one, batch, limit=60)
    assert plan.oversize
    assert [chunk.requests for chunk in plan] == [1] * 4
    assert largest_error(out, one.v4_reference(batch, selection(one, batch))) < TOLERANCE[torch.bfloat16]
    assert torch.equal(prefill(one, batch)[1], out)
    one.free(batch)


def test_counters_by_hand() -> None:
    """Ratio 4, window 9. Two requests: 40 tokens of which 10 are new, and 8 of which all are."""
    one = lab("c4a", torch.bfloat16)
    batch = one.batch([(30, 10), (0, 8)])
    one.tally.reset()
    plan, _ = prefill(one, batch)
    assert list(plan) == [(0, 2, 10, 10 + 18)]
    tally = one.tally
    assert (tally.chunks, tally.launches) == (1, 4)
    # 10 + 2 compressed rows; window rows 10 + 8 and 8.
    assert tally.gathered_rows == 12 + 26
    assert tally.padded_rows == 2 * 28 - 38
    assert tally.gather_bytes == 38 * 2 * 80 * 2
    # The first ten queries see 7 to 10 compressed rows and 9 of the window, the others 0 to 2 and 1 to 8.
    pairs = sum((position + 1) // 4 + min(position + 1, 9) for position in [*range(30, 40), *range(8)])
    assert tally.flops == 4 * 3 * 80 * pairs
    assert tally.seconds["prefill"] >= tally.seconds["gather"] + tally.seconds["attend"] > 0
    one.free(batch)


def test_a_locked_workspace_refuses_a_chunk_that_was_not_reserved() -> None:
    one = Lab("c4a", torch.bfloat16)
    batch = one.batch([(0, 100)] * 2)
    # As if the reservation had been made for a single small request.
    (layer,) = one.v4
    manager = layer._manager = WorkspaceManager()
    manager.get_simultaneous(((1, 50, 80), torch.bfloat16))
    manager.lock()
    with pytest.raises(LabError, match=r"^workspace-locked: a request of \d+ bytes .* exceeds the locked workspace"):
        prefill(one, batch)


def test_indices_by_hand() -> None:
    """Window 3, ratio 2. The second request lies at place 1 of a chunk of width 10 with 4 compressed rows."""
    one = Lab("c2a", torch.float32, window=3)
    batch = one.batch([(0, 1), (4, 2)])
    members = list(batch.members)
    assert [gather_len(member, 3) for member in members] == [1, 4]
    selected = torch.tensor([[-1, -1], [0, 1], [1, 2]], dtype=torch.int32)
    indices, lengths = torch.full((3, 6), 77, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    combine_indices(Chunk(0, 2, 4, 10), members, selected, 3, indices, lengths)
    assert indices.tolist() == [
        [4, -1, -1, -1, -1, 77],
        # Rows 0 and 1; then positions 2 to 4, of which position 2 was gathered first.
        [10, 11, 14, 15, 16, 77],
        [11, 12, 15, 16, 17, 77],
    ]
    assert lengths.tolist() == [1, 5, 5]
