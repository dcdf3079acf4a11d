"""Dense and sparse layers over R ranks give what one rank gives, in prefill and in decode."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.context import PagedContext
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from tests.engines.kernel_lab.dcp.rings import BLOCK, RankLabs, rank_labs
from tests.engines.kernel_lab.labs import TOLERANCE, Lab, largest_error

RANKS = (1, 2, 4, 8, 16)
INTERLEAVES = (1, 4, 16, 64)
KINDS = ("dense", "sparse")
Lengths = Sequence[tuple[int, int]]


def selection(lab: Lab, batch: Batch) -> torch.Tensor | None:
    topk = lab.mla[0].shape.index_topk
    return None if topk is None else select_rows(batch.positions, ratio=1, topk=topk)


def over_ranks(labs: RankLabs, lengths: Lengths, seed: int, rows: int | None) -> torch.Tensor:
    """Output of all heads; of a prefill in a workspace of so many rows, or of a decode step."""
    batches = [lab.batch(lengths, seed) for lab in labs.labs]

    def act(rank: int) -> torch.Tensor:
        lab, batch = labs.labs[rank], batches[rank]
        (layer,) = lab.mla
        if rows is None:
            return layer.decode(batch)
        source = labs.context(rank, rows)
        out = layer.prefill(batch, source.plan(batch), source, selection(lab, batch), lab.tally)
        source.manager.check_canaries()
        return out.clone()

    try:
        return torch.cat(labs.ring.run(act), dim=1)
    finally:
        for lab, batch in zip(labs.labs, batches, strict=True):
            lab.free(batch)


def on_one(labs: RankLabs, lengths: Lengths, seed: int, is_prefill: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output of a layer that has all rows and heads, and what the reference gives."""
    lab = labs.whole
    batch = lab.batch(lengths, seed)
    chosen = selection(lab, batch)
    (layer,) = lab.mla
    with torch.inference_mode():
        if is_prefill:
            source = PagedContext(
                WorkspaceManager(),
                lab.kernels,
                workspace_rows=1024,
                block_size=BLOCK,
                width=layer.shape.latent,
                dtype=lab.dtype,
            )
            out = layer.prefill(batch, source.plan(batch), source, chosen, lab.tally).clone()
        else:
            out = layer.decode(batch)
    expected = lab.mla_reference(batch, chosen)
    lab.free(batch)
    return out, expected


@pytest.mark.parametrize("interleave", INTERLEAVES)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    steps=st.integers(1, 3),
)
def test_prefill_equals_one_rank(
    kind: str, ranks: int, interleave: int, lengths: Lengths, seed: int, steps: int
) -> None:
    labs = rank_labs(kind, torch.float32, ranks, interleave)
    got = over_ranks(labs, lengths, seed, steps * max(BLOCK, ranks * interleave))
    for expected in on_one(labs, lengths, seed, is_prefill=True):
        assert largest_error(got, expected) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("interleave", INTERLEAVES)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(lengths=st.lists(st.tuples(st.integers(0, 300), st.just(1)), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_decode_equals_one_rank(kind: str, ranks: int, interleave: int, lengths: Lengths, seed: int) -> None:
    """Also where some ranks keep no row that the token sees."""
    labs = rank_labs(kind, torch.float32, ranks, interleave)
    got = over_ranks(labs, lengths, seed, None)
    for expected in on_one(labs, lengths, seed, is_prefill=False):
        assert largest_error(got, expected) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 8])
def test_bfloat16_within_its_tolerance(kind: str, ranks: int) -> None:
    labs = rank_labs(kind, torch.bfloat16, ranks, 4)
    lengths = [(300, 20), (7, 3), (0, 30)]
    _, expected = on_one(labs, lengths, 0, is_prefill=True)
    assert largest_error(over_ranks(labs, lengths, 0, 128), expected) < TOLERANCE[torch.bfloat16]
