"""Context chunks over many ranks: no row is lost, none lies outside, and nothing beside the workspace is touched."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.engines.kernel_lab.context import PagedContext
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.source import ShardedContext
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from tests.engines.kernel_lab.dcp.rings import BLOCK, RankLabs, rank_labs

RANKS = (1, 2, 4, 8, 16)
INTERLEAVES = (1, 4, 16, 64)


def cached(labs: RankLabs, contexts: Sequence[int]) -> tuple[list[Batch], Batch]:
    """Requests with these contexts: their batch on each rank, and on one rank that has all rows.

    Rows that no token wrote are NaN, so that one which came through would be seen.
    """
    for lab in (*labs.labs, labs.whole):
        lab.mla[0]._cache.flat.fill_(torch.nan)
    lengths = [(context, 1) for context in contexts]
    return [lab.batch(lengths) for lab in labs.labs], labs.whole.batch(lengths)


def paged(labs: RankLabs, batch: Batch) -> list[torch.Tensor]:
    """The rows of each context, out of one rank that has all."""
    lab = labs.whole
    source = PagedContext(
        WorkspaceManager(),
        lab.kernels,
        workspace_rows=8192,
        block_size=BLOCK,
        width=lab.mla[0].shape.latent,
        dtype=lab.dtype,
    )
    found: list[torch.Tensor] = []
    for chunk in source.plan(batch):
        members = batch.members[chunk.request_start : chunk.request_end]
        rows = source.fill(chunk, members, lab.mla[0]._cache, lab.tally)
        found += rows.clone().split(chunk.lengths)
    return found


def check_rows(labs: RankLabs, contexts: Sequence[int], rows: int) -> list[Tally]:
    """Every rank gets every row of every context once, bit by bit; the tallies of the ranks."""
    batches, whole = cached(labs, contexts)

    def fill(rank: int) -> tuple[Tally, list[list[torch.Tensor]]]:
        lab, batch = labs.labs[rank], batches[rank]
        source = labs.context(rank, rows)
        tally = Tally(lab.kernels)
        found: list[list[torch.Tensor]] = [[] for _ in contexts]
        for chunk in source.plan(batch):
            assert chunk.rows <= rows // len(labs.labs)
            members = batch.members[chunk.request_start : chunk.request_end]
            ordered = source.fill(chunk, members, lab.mla[0]._cache, tally)
            for request, part in enumerate(ordered.split(chunk.lengths), chunk.request_start):
                found[request].append(part.clone())
        source.manager.check_canaries()
        assert source.manager.peak_bytes <= source.manager.current_bytes
        return tally, found

    try:
        results = labs.ring.run(fill)
        everything = paged(labs, whole)
    finally:
        for lab, batch in zip((*labs.labs, labs.whole), (*batches, whole), strict=True):
            lab.free(batch)
    wanted = iter(everything)
    expected = [next(wanted) if context else None for context in contexts]
    for _, found in results:
        for parts, want in zip(found, expected, strict=True):
            if want is None:
                assert not parts
            else:
                assert torch.equal(torch.cat(parts), want)
    return [tally for tally, _ in results]


@pytest.mark.parametrize("interleave", [1, 4, 16])
@pytest.mark.parametrize("ranks", [8, 16])
def test_every_residue_of_the_context_length(ranks: int, interleave: int) -> None:
    """In requests of which eight fit at a time: below one turn of the ranks, and after one."""
    labs = rank_labs("dense", torch.bfloat16, ranks, interleave)
    turn = ranks * interleave
    rows = max(BLOCK, turn)
    for first in range(0, turn, 8):
        tallies = check_rows(labs, [*range(first, first + 7), turn + first + 7], rows)
        assert len({(one.gathered_rows, one.padded_rows, one.all_gather_bytes) for one in tallies}) == 1


@pytest.mark.parametrize("interleave", INTERLEAVES)
@pytest.mark.parametrize("ranks", RANKS)
@settings(max_examples=5)
@given(contexts=st.lists(st.integers(0, 500), min_size=1, max_size=5).filter(any), steps=st.integers(1, 4))
def test_rows_are_bitwise_those_of_one_rank(ranks: int, interleave: int, contexts: list[int], steps: int) -> None:
    labs = rank_labs("dense", torch.bfloat16, ranks, interleave)
    check_rows(labs, contexts, steps * max(BLOCK, ranks * interleave))


def test_counters_by_hand() -> None:
    """Contexts of 300 and 5 tokens over 4 ranks in runs of 16: shares of 80 and 16 rows, of which 64 fit at a time."""
    labs = rank_labs("dense", torch.bfloat16, 4, 16)
    row = 48 * 2
    for tally in check_rows(labs, [300, 5], 256):
        assert (tally.gathered_rows, tally.padded_rows) == (305, 4 * (80 + 16) - 305)
        assert tally.all_gather_bytes == 3 * (80 + 16) * row
        assert tally.gather_bytes == 2 * (80 + 16) * row + 2 * 305 * row
        assert tally.launches == 2 * 3
        assert tally.seconds["all-gather"] > 0


@pytest.mark.parametrize("ranks", [2, 8])
def test_the_workspace_has_a_share_more_than_its_rows(ranks: int) -> None:
    labs = rank_labs("dense", torch.bfloat16, ranks, 4)
    source = labs.context(0, 512)
    assert source.reserved_rows == 512 + 512 // ranks
    assert source.manager.current_bytes == source.reserved_rows * 48 * 2
    assert source.manager.is_locked


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (60, "workspace-too-small: a workspace of 60 rows holds no aligned chunk of 64 rows over 2 ranks"),
        (129, "lab-shape: workspace rows must be a multiple of 2 ranks, got 129"),
    ],
)
def test_a_wrong_workspace_is_refused(rows: int, message: str) -> None:
    with pytest.raises(LabError) as error:
        rank_labs("dense", torch.bfloat16, 2, 4).context(0, rows)
    assert str(error.value) == message


def test_an_interleave_that_does_not_divide_the_block_is_refused() -> None:
    labs = rank_labs("dense", torch.bfloat16, 2, 4)
    with pytest.raises(LabError, match=r"^lab-shape: the interleave must divide the block size 6, got 4$"):
        ShardedContext(
            WorkspaceManager(),
            labs.whole.kernels,
            labs.ring.shares[0],
            workspace_rows=64,
            block_size=6,
            width=48,
            dtype=torch.bfloat16,
        )
