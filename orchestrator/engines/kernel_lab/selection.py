"""Which cached rows a token attends to: what the indexer of a sparse model decides.

The lab has no indexer. It takes the newest rows and every n-th of the older ones, so that neighbouring tokens choose
nearly the same, as they do in real models too. A kernel that reads a tile's rows once gains from that overlap: how
much, on a real model, is not measured here.
"""

from __future__ import annotations

from typing import Final

import torch

from orchestrator.engines.kernel_lab.batch import Batch

_NEWEST: Final = 64


def select_rows(positions: torch.Tensor, *, ratio: int, topk: int) -> torch.Tensor:
    """Rows for each token, in growing order; -1 in the places that are left over.

    Args:
        positions: Position of each token in its request, from 0; ``[tokens]``.
        ratio: Tokens that a row stands for, at least 1. A token sees the rows whose tokens have all come by then.
        topk: Most rows of a token, at least 1.

    Returns:
        ``int32``, ``[tokens, topk]``: the ``min(topk, visible)`` rows of each.
    """
    visible = torch.div(positions + 1, ratio, rounding_mode="floor").unsqueeze(1)
    places = torch.arange(topk, device=positions.device).unsqueeze(0)
    run = min(topk, _NEWEST)
    older = topk - run
    # Every n-th of the older rows. More rows than topk are visible here, so that n is at least 1, and it stays the same
    # until the older rows have grown by as many as are chosen of them.
    every = torch.div((visible - run).clamp_min(0), max(older, 1), rounding_mode="floor")
    spread = places * every
    newest = visible - topk + places
    chosen = torch.where(places < older, spread, newest)
    chosen = torch.where(visible <= topk, places.expand_as(chosen), chosen)
    return chosen.masked_fill_(places >= visible, -1).to(torch.int32)


def selection_of(batch: Batch, *, ratio: int, topk: int) -> torch.Tensor:
    """:func:`select_rows` for the queries of a batch, no wider than its longest request needs; ``topk`` may be 0."""
    visible = int(batch.seq_lens.max()) // ratio
    if topk == 0 or visible == 0:
        return torch.empty(batch.tokens, 0, dtype=torch.int32, device=batch.device)
    return select_rows(batch.positions, ratio=ratio, topk=min(topk, visible))


def hidden_mask(selected: torch.Tensor, start: int, count: int, rows: int) -> torch.Tensor:
    """What a piece of a request's rows hides from each token.

    Args:
        selected: From :func:`select_rows`, ``[tokens, topk]``.
        start: First row of the piece.
        count: Rows in it.
        rows: Tokens of the result, at least as many as there are; the additional ones see nothing.

    Returns:
        ``bool``, ``[rows, count]``: True where the token does not attend to the row.
    """
    hidden = torch.ones(rows, count + 1, dtype=torch.bool, device=selected.device)
    columns = selected.long() - start
    # What lies elsewhere goes to a last column that is cut off.
    columns.masked_fill_((columns < 0) | (columns >= count), count)
    hidden[: selected.shape[0]].scatter_(1, columns, False)
    return hidden[:, :count]
