"""Dense and sparse MLA layers: any cap of the workspace gives what an unchunked fp32 reference gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.context import PagedContext
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from tests.engines.kernel_lab.labs import BATCHES, TOLERANCE, Lab, largest_error

Lengths = Sequence[tuple[int, int]]
CAPS = st.integers(1, 12).map(lambda blocks: blocks * 16)
KINDS = ("dense", "sparse")


@cache
def lab(kind: str, dtype: torch.dtype) -> Lab:
    """One lab for all examples of a kind: its tables take longer than an example."""
    return Lab(kind, dtype, block_size=16)


def context(one: Lab, rows: int, rule: str = "0.28") -> PagedContext:
    return PagedContext(
        WorkspaceManager(guard_bytes=4096),
        one.kernels,
        workspace_rows=rows,
        block_size=16,
        width=one.mla[0].shape.latent,
        dtype=one.dtype,
        rule=rule,
        align_to_block=one.kind == "dense",
    )


def selection(one: Lab, batch: Batch) -> torch.Tensor | None:
    topk = one.mla[0].shape.index_topk
    return None if topk is None else select_rows(batch.positions, ratio=1, topk=topk)


def prefill(one: Lab, batch: Batch, rows: int, rule: str = "0.28") -> tuple[int, torch.Tensor]:
    """Chunks and output."""
    source = context(one, rows, rule)
    plan = source.plan(batch)
    with torch.inference_mode():
        out = one.mla[0].prefill(batch, plan, source, selection(one, batch), one.tally)
    source.manager.check_canaries()
    return len(plan), out.clone()


def check_equals_reference(one: Lab, lengths: Lengths, seed: int, caps: Sequence[int]) -> None:
    batch = one.batch(lengths, seed)
    try:
        expected = one.mla_reference(batch, selection(one, batch))
        for rows in (*caps, 4096):
            assert largest_error(prefill(one, batch, rows)[1], expected) < TOLERANCE[one.dtype], rows
    finally:
        one.free(batch)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(lengths=BATCHES, seed=st.integers(0, 1000), caps=st.lists(CAPS, min_size=1, max_size=3))
def test_output_equals_the_reference_under_every_cap(
    lengths: Lengths, seed: int, caps: list[int], kind: str, dtype: torch.dtype
) -> None:
    check_equals_reference(lab(kind, dtype), lengths, seed, caps)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=1000)
@given(lengths=BATCHES, seed=st.integers(0, 10**6), caps=st.lists(CAPS, min_size=1, max_size=3))
def test_output_equals_the_reference_for_many_batches(
    lengths: Lengths, seed: int, caps: list[int], kind: str, dtype: torch.dtype
) -> None:
    check_equals_reference(lab(kind, dtype), lengths, seed, caps)


@pytest.mark.parametrize("rule", ["0.8", "0.11"])
def test_the_even_split_of_older_versions_gives_the_same(rule: str) -> None:
    one = lab("dense", torch.float32)
    batch = one.batch([(100, 20), (0, 9), (33, 30)])
    chunks, out = prefill(one, batch, 64, rule)
    assert chunks == 4
    assert largest_error(out, one.mla_reference(batch, None)) < TOLERANCE[torch.float32]
    one.free(batch)


@pytest.mark.parametrize("rows", [16, 48])
def test_a_request_longer_than_the_workspace_is_split_and_nothing_beside_it_is_touched(rows: int) -> None:
    """500 tokens of context in a workspace of 16 or 48 rows; ``prefill`` looks at the canaries."""
    one = lab("dense", torch.bfloat16)
    batch = one.batch([(450, 30), (5, 10), (40, 1), (0, 60)])
    chunks, out = prefill(one, batch, rows)
    assert chunks >= 450 // rows
    assert largest_error(out, one.mla_reference(batch, None)) < TOLERANCE[torch.bfloat16]
    one.free(batch)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(lengths=st.lists(st.tuples(st.integers(0, 200), st.just(1)), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_a_decode_step_equals_the_reference(lengths: Lengths, seed: int, kind: str) -> None:
    one = lab(kind, torch.float32)
    batch = one.batch(lengths, seed)
    with torch.inference_mode():
        out = one.mla[0].decode(batch)
    assert largest_error(out, one.mla_reference(batch, selection(one, batch))) < TOLERANCE[torch.float32]
    one.free(batch)


def test_counters_by_hand() -> None:
    """Contexts of 40 and 0 tokens in a workspace of 32 rows: two chunks of 32 and 8 rows."""
    one = lab("dense", torch.bfloat16)
    batch = one.batch([(40, 10), (0, 6)])
    one.tally.reset()
    chunks, _ = prefill(one, batch, 32)
    tally, shape = one.tally, one.mla[0].shape
    assert chunks == tally.chunks == 2
    assert (tally.launches, tally.gathered_rows, tally.padded_rows, tally.workspace_entries) == (8, 40, 0, 1)
    assert tally.gather_bytes == 40 * 2 * 48 * 2
    # All 10 new tokens see the 40 of the context; among themselves, 10 and 6 see those up to their own.
    pairs = 10 * 40 + 10 * 11 // 2 + 6 * 7 // 2
    assert tally.flops == shape.expansion_flops(40 + 16) + 2 * pairs * 3 * (16 + 16 + 24)
    one.free(batch)


def test_a_workspace_without_room_for_an_aligned_chunk_is_refused() -> None:
    one = lab("dense", torch.bfloat16)
    with pytest.raises(
        LabError, match=r"^workspace-too-small: a workspace of 15 rows holds no aligned chunk of 16 rows$"
    ):
        context(one, 15)


def test_a_locked_workspace_refuses_a_larger_chunk() -> None:
    one = lab("dense", torch.bfloat16)
    batch = one.batch([(100, 4)])
    small, large = context(one, 32), context(one, 128)
    with (
        torch.inference_mode(),
        pytest.raises(LabError, match=r"^workspace-locked: a request of 9728 bytes .* of 3072 bytes"),
    ):
        one.mla[0].prefill(batch, large.plan(batch), small, None, one.tally)
    one.free(batch)
