"""Sparse attention of DeepSeek-V4 in plain torch: each query attends to the workspace rows that its indices name.

A row is key and value at once, and all heads share it. Neighbouring queries name mostly the same rows. So the queries
of one request are taken in tiles: a tile's rows are copied together once, in growing order, and what a query did not
name is masked. A tile depends on its request alone, not on the chunk that the request is in nor on where the chunk put
its rows, so the result is the same to the last bit however the batch was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from orchestrator.engines.kernel_lab.errors import require_shape
from orchestrator.engines.kernel_lab.workspace import Scratch, round_up

_TILE_ROWS: Final = 512
"""Queries times heads in a tile."""

_ROW_STEP: Final = 64
_QUERY_STEP: Final = 8
_SPREAD_SAMPLES: Final = 16
_NEWEST_STEP: Final = 8
_LARGEST_SUM: Final = 2.0**100


@dataclass(frozen=True)
class QuerySpan:
    """The queries of one request in a chunk.

    Attributes:
        query: First of them in the queries of the step.
        count: How many.
        index: Row of the index tensor that belongs to the first.
        place: Place of the request in the chunk.
    """

    query: int
    count: int
    index: int
    place: int


@dataclass(frozen=True)
class SparseCall:
    """One launch of sparse attention.

    Attributes:
        queries: In base 2 (multiplied by ``scale * log2(e)``), ``[queries of the step, heads, width]``.
        rows: The workspace, ``[requests, rows of each, width]``.
        indices: Rows of the workspace, counted over all requests, ``int32``, ``[queries, most]``; -1 for none.
        lengths: How many of a query's indices count, ``int32``, ``[queries]``. From there to the most that any query
            has they are -1.
        spans: Which queries belong to which request.
        sink: Weight that goes nowhere, as a score in base 2, fp32, ``[heads]``.
        out: Like ``queries``; the rows of the spans are written.
    """

    queries: torch.Tensor
    rows: torch.Tensor
    indices: torch.Tensor
    lengths: torch.Tensor
    spans: Sequence[QuerySpan]
    sink: torch.Tensor
    out: torch.Tensor


def sparse_attention(call: SparseCall, scratch: Scratch) -> None:
    """Run one launch.

    Raises:
        LabError: ``lab-shape``.
    """
    _, heads, width = call.queries.shape
    require_shape("rows", tuple(call.rows.shape), (None, None, width))
    require_shape("sink", tuple(call.sink.shape), (heads,))
    require_shape("out", tuple(call.out.shape), tuple(call.queries.shape))
    require_shape("lengths", tuple(call.lengths.shape), (call.indices.shape[0],))
    step = max(1, _TILE_ROWS // heads)
    for span in call.spans:
        for first in range(0, span.count, step):
            _Tile(call, span, first, min(step, span.count - first), scratch).run()


class _Tile:
    """Some queries of one request, with the rows that any of them names."""

    def __init__(self, call: SparseCall, span: QuerySpan, first: int, count: int, scratch: Scratch) -> None:
        self._call, self._scratch = call, scratch
        self._count = count
        self._padded = round_up(count, _QUERY_STEP)
        self._at = span.query + first
        rows = slice(span.index + first, span.index + first + count)
        self._lengths = call.lengths[rows]
        self._indices = call.indices[rows, : int(self._lengths.max())]
        self._base = span.place * call.rows.shape[1]

    def run(self) -> None:
        call, heads, width = self._call, self._call.queries.shape[1], self._call.queries.shape[2]
        queries = self._queries(heads, width)
        keys, hidden, newest = self._named_rows(width)
        exact = False
        while True:
            shift = self._shift(queries, keys, hidden, None if exact else newest)
            weights = self._scratch.take("scores", (queries.shape[0], keys.shape[0]), queries.dtype)
            torch.addmm(shift.neg(), queries, keys.t(), out=weights)
            torch.exp2(weights, out=weights)
            self._hide(weights.view(self._padded, heads, -1), hidden, is_safe=not exact)
            sums = weights.sum(-1, keepdim=True, dtype=torch.float32)
            sums += torch.exp2(call.sink.repeat(self._padded).unsqueeze(1) - shift)
            if exact or bool(sums.max() < _LARGEST_SUM):
                break
            exact = True
        product = torch.mm(weights, keys, out=self._scratch.take("weighted", (queries.shape[0], width), queries.dtype))
        own = self._count * heads
        torch.div(product[:own], sums[:own], out=call.out[self._at : self._at + self._count].view(own, width))

    def _queries(self, heads: int, width: int) -> torch.Tensor:
        """The queries as one matrix, with zeros up to a whole step."""
        own = self._call.queries[self._at : self._at + self._count]
        if self._padded == self._count and own.is_contiguous():
            return own.reshape(-1, width)
        padded = self._scratch.take("tile queries", (self._padded, heads, width), own.dtype)
        padded[: self._count] = own
        padded[self._count :] = 0
        return padded.view(-1, width)

    def _named_rows(self, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rows that are named, in growing order; which of them each query hides; where each query's last one is."""
        call, device = self._call, self._indices.device
        most = call.rows.shape[1]
        # One place more than there are rows, for the indices that name none.
        local = torch.where(self._indices < 0, most, self._indices - self._base).long()
        named = torch.zeros(most + 1, dtype=torch.bool, device=device)
        named[local.view(-1)] = True
        named[most] = False
        rows = named.nonzero().squeeze(1)
        count = rows.shape[0]
        padded = round_up(count, _ROW_STEP)
        column = torch.empty(most + 1, dtype=torch.int64, device=device)
        column[rows] = torch.arange(count, device=device)
        column[most] = padded
        hidden = torch.ones(self._padded, padded + 1, dtype=torch.bool, device=device)
        columns = column[local]
        hidden[: self._count].scatter_(1, columns, False)
        newest = columns.gather(1, (self._lengths.long() - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
        keys = self._scratch.take("named", (padded, width), call.rows.dtype)
        torch.index_select(call.rows.view(-1, width), 0, rows + self._base, out=keys[:count])
        keys[count:] = 0
        return keys, hidden[:, :padded], newest

    def _hide(self, weights: torch.Tensor, hidden: torch.Tensor, *, is_safe: bool) -> None:
        """Set what a query did not name to 0. A product is four times as fast, but makes NaN of an infinite weight,
        and the caller then tries again."""
        if is_safe:
            weights.mul_(hidden.logical_not().to(weights.dtype).unsqueeze(1))
        else:
            weights.masked_fill_(hidden.unsqueeze(1), 0.0)

    def _shift(
        self, queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor, newest: torch.Tensor | None
    ) -> torch.Tensor:
        """The largest score of each query and head with some of its rows, or with all; never below the sink.

        The sample holds the newest row of every few queries, which those after them see too. A query that sees nothing
        of the sample gets the sink; should that be far too low, its sum overflows and all rows are looked at.
        """
        if newest is not None:
            spread = torch.arange(0, keys.shape[0], -(-keys.shape[0] // _SPREAD_SAMPLES), device=keys.device)
            columns = torch.cat((newest[::_NEWEST_STEP], spread))
            keys, hidden = keys[columns], hidden[:, columns]
        heads = self._call.sink.shape[0]
        scores = torch.mm(queries, keys.t()).view(self._padded, heads, -1)
        scores.masked_fill_(hidden.unsqueeze(1), -torch.inf)
        return torch.maximum(scores.amax(-1), self._call.sink.to(scores.dtype)).view(-1, 1)


def attend_latent(
    queries: torch.Tensor, rows: torch.Tensor, value_width: int, *, sink: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one token over rows that all its heads share: a decode step.

    Args:
        queries: In base 2, ``[heads, width]``.
        rows: ``[count, width]``, at least one.
        value_width: Leading elements of a row that are its value.
        sink: As in :class:`SparseCall`; None for none. It is left out of the log-sum-exp.

    Returns:
        The weighted mean, fp32, ``[heads, value_width]``, and the log-sum-exp to base 2, fp32, ``[heads]``.

    Raises:
        LabError: ``lab-shape``.
    """
    require_shape("rows", tuple(rows.shape), (None, queries.shape[1]))
    # With the rows first they are read once and as they lie; the few queries are what is rearranged.
    shift = torch.mm(rows, queries.t()).amax(0)
    if sink is not None:
        shift = torch.maximum(shift, sink.to(shift.dtype))
    weights = torch.addmm(shift.neg(), rows, queries.t()).exp2_()
    sums = weights.sum(0, dtype=torch.float32)
    total = sums if sink is None else sums + torch.exp2(sink - shift)
    out = torch.mm(weights.t().contiguous(), rows[:, :value_width])
    return out.float() / total.unsqueeze(1), torch.log2(sums) + shift
