"""Attention over a piece of keys, in plain torch, with the log-sum-exp that joins it to other pieces.

The work is cut into tiles whose scores stay in a core's cache. Scores are products of ``bfloat16`` numbers and are
rounded to ``bfloat16`` themselves, which costs a large score more than a small one. So an estimate of each row's
maximum is subtracted inside the product, before that rounding: what then weighs most is near zero and keeps its
precision. Any estimate gives the right result as long as no sum overflows; if one does, the call is made again with the
true maximum.

Scores are in base 2 throughout: queries come multiplied by ``scale * log2(e)``.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import torch

from orchestrator.engines.kernel_lab.errors import require_shape
from orchestrator.engines.kernel_lab.softmax_loop import can_weigh, largest_of_first, weigh
from orchestrator.engines.kernel_lab.workspace import Scratch, round_up

LOG2_E: Final = 1.4426950408889634

KEY_STEP: Final = 64
"""Keys are padded to a multiple of this, so that few shapes occur: for each new one the library of matrix products
compiles code, half a millisecond long."""

QUERY_STEP: Final = 16
"""The same for queries."""

_QUERY_TILE: Final = 512
_CAUSAL_TILE: Final = 256
_KEY_TILE: Final = 1024
_TILE: Final = 2 * _QUERY_TILE * _KEY_TILE
"""Scores of a tile for each thread: two megabytes of ``bfloat16``. Smaller ones fit better into a cache, larger ones
take fewer calls."""

_RUN: Final = 16
"""Neighbours that a sample of the keys takes together: they are copied faster than keys that lie apart."""

_KEYS_PER_RUN: Final = 512
_FEWEST_RUNS: Final = 2
_MOST_RUNS: Final = 4

_LARGEST_SUM: Final = 2.0**100
_TINY: Final = torch.finfo(torch.float32).tiny


class Partial(NamedTuple):
    """Attention over some of the keys.

    Attributes:
        out: Weighted mean of the values, fp32, ``[heads, queries, value]``; 0 where nothing was visible.
        lse: Logarithm to base 2 of the sum of the weights, fp32, ``[heads, queries]``; minus infinity there.
    """

    out: torch.Tensor
    lse: torch.Tensor

    @classmethod
    def empty(cls, heads: int, queries: int, value: int, device: torch.device) -> Self:
        """Tensors for a result, with undefined content."""
        out = torch.empty(heads, queries, value, dtype=torch.float32, device=device)
        return cls(out, torch.empty(heads, queries, dtype=torch.float32, device=device))


def attend(
    queries: torch.Tensor,
    keys_t: torch.Tensor,
    values: torch.Tensor,
    length: int,
    *,
    scratch: Scratch,
    causal: bool = False,
    hidden: torch.Tensor | None = None,
    into: Partial | None = None,
) -> Partial:
    """Attention of all queries over the first ``length`` keys.

    Args:
        queries: ``[heads, queries, key]``, in base 2; a number of queries that is a multiple of ``QUERY_STEP``.
        keys_t: Keys with their elements along the rows, ``[heads, key, padded]``: products take them without a copy.
        values: ``[heads, padded, value]``, finite also in the padding. ``padded`` is a multiple of ``KEY_STEP``.
        length: Keys without padding.
        causal: Whether query ``i`` sees the keys up to ``i`` only.
        hidden: ``bool``, ``[queries, length]``: True where a query does not see a key. Not together with ``causal``.
        into: Where the result goes; None for new tensors.

    Raises:
        LabError: ``lab-shape``.
    """
    heads, count, key = queries.shape
    padded = keys_t.shape[2]
    require_shape("keys_t", tuple(keys_t.shape), (heads, key, None))
    require_shape("values", tuple(values.shape), (heads, padded, None))
    if hidden is not None:
        require_shape("hidden", tuple(hidden.shape), (count, length))
    call = _Call(queries, keys_t, values, length, causal, hidden, scratch)
    result = Partial.empty(heads, count, values.shape[2], queries.device) if into is None else into
    require_shape("into", tuple(result.out.shape), (heads, count, values.shape[2]))
    out, sums = result
    shifts = scratch.take("shifts", (heads, count), torch.float32)
    call.run(out, sums, shifts, exact=hidden is not None)
    # A comparison with NaN is false too.
    if not bool(sums.max() < _LARGEST_SUM):
        call.run(out, sums, shifts, exact=True)
    sums.log2_().add_(shifts)
    return result


def merge_into(total: Partial, other: Partial) -> None:
    """Join the attention over other keys to ``total``, in place. Both have the same queries.

    Source of the rule: the merge of attention states by log-sum-exp in FlashInfer and vLLM (``merge_attn_states``).
    """
    largest = torch.maximum(total.lse, other.lse)
    # Where neither saw anything, minus infinity less itself would be NaN.
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    ours, theirs = torch.exp2(total.lse - base), torch.exp2(other.lse - base)
    both = (ours + theirs).clamp_min_(_TINY)
    total.out.mul_((ours / both).unsqueeze(-1)).add_(other.out * (theirs / both).unsqueeze(-1))
    total.lse.copy_(torch.log2(ours + theirs).add_(base))


class _Span(NamedTuple):
    """Keys of one tile: ``first`` to ``last - 1``, with the padding up to ``padded - 1``.

    Attributes:
        diagonal: Where causal queries begin, counted from ``first``; None where every query sees all of the keys.
    """

    first: int
    last: int
    padded: int
    diagonal: int | None


class _Call:
    def __init__(
        self,
        queries: torch.Tensor,
        keys_t: torch.Tensor,
        values: torch.Tensor,
        length: int,
        causal: bool,
        hidden: torch.Tensor | None,
        scratch: Scratch,
    ) -> None:
        self._queries, self._keys_t, self._values = queries, keys_t, values
        self._length, self._causal, self._hidden, self._scratch = length, causal, hidden, scratch

    def run(self, out: torch.Tensor, sums: torch.Tensor, shifts: torch.Tensor, *, exact: bool) -> None:
        """Fill ``out`` with means of values, ``sums`` with sums of weights and ``shifts`` with what was subtracted from
        the scores."""
        heads, count, _ = self._queries.shape
        step = _CAUSAL_TILE if self._causal else _QUERY_TILE
        size = _TILE * torch.get_num_threads()
        sampled = None if exact else self._sampled_maxima()
        for first in range(0, count, step):
            rows = slice(first, min(first + step, count))
            spans = self._spans(first, rows.stop - first)
            widest = max((span.padded - span.first for span in spans), default=1)
            together = max(1, min(heads, size // ((rows.stop - first) * widest)))
            for head in range(0, heads, together):
                part = (slice(head, min(head + together, heads)), rows)
                shift = self._true_maxima(part, spans) if sampled is None else sampled[part]
                shifts[part] = shift
                self._tile(part, spans, shift.neg().unsqueeze(-1), out[part], sums[part])

    def _spans(self, first: int, count: int) -> list[_Span]:
        last = min(self._length, first + count) if self._causal else self._length
        spans = []
        for start in range(0, last, _KEY_TILE):
            stop = min(start + _KEY_TILE, last)
            diagonal = first - start if self._causal and stop > first else None
            spans.append(_Span(start, stop, min(round_up(stop, KEY_STEP), self._keys_t.shape[2]), diagonal))
        return spans

    def _tile(
        self,
        part: tuple[slice, slice],
        spans: list[_Span],
        negative_shift: torch.Tensor,
        out: torch.Tensor,
        sums: torch.Tensor,
    ) -> None:
        queries, values = self._queries[part], self._values[part[0]]
        heads, count, _ = queries.shape
        product = self._scratch.take("weighted", (heads, count, values.shape[2]), queries.dtype)
        if not spans:
            sums.zero_()
            out.zero_()
        some = self._scratch.take("sums of a span", (heads, count), torch.float32)
        for number, span in enumerate(spans):
            weights = self._scratch.take("scores", (heads, count, span.padded - span.first), queries.dtype)
            keys = self._keys_t[part[0], :, span.first : span.padded]
            torch.baddbmm(negative_shift, queries, keys, out=weights)
            self._weigh(weights, span, part[1], some)
            torch.bmm(weights, values[:, span.first : span.padded], out=product)
            if number == 0:
                sums.copy_(some)
            else:
                sums += some
            if len(spans) == 1:
                torch.div(product, _as_divisor(sums), out=out)
            elif number == 0:
                out.copy_(product)
            else:
                out += product
        if len(spans) > 1:
            out.div_(_as_divisor(sums))

    def _weigh(self, scores: torch.Tensor, span: _Span, rows: slice, sums: torch.Tensor) -> None:
        """Make weights of scores, and sum them up."""
        if self._hidden is None and can_weigh(scores):
            weigh(scores, sums, visible=span.last - span.first, diagonal=span.diagonal)
            return
        torch.exp2(scores, out=scores)
        self._hide(scores, span, rows, 0.0)
        torch.sum(scores, -1, dtype=torch.float32, out=sums)

    def _hide(self, scores: torch.Tensor, span: _Span, rows: slice, value: float) -> None:
        """Overwrite what a query does not see, padding included."""
        width = span.last - span.first
        if scores.shape[2] > width:
            scores[:, :, width:] = value
        if span.diagonal is not None:
            if value == 0.0:
                scores.tril_(span.diagonal)
            else:
                above = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu_(span.diagonal + 1)
                scores.masked_fill_(above, value)
        elif self._hidden is not None:
            scores[:, :, :width].masked_fill_(self._hidden[rows, span.first : span.last], value)

    def _sampled_maxima(self) -> torch.Tensor:
        """The largest score with some of the keys, the first few and others between: ``[heads, queries]``.

        Every query sees the first key, and the result is never above the true maximum, so the largest weight is at
        least 1.
        """
        queries, length = self._queries, self._length
        if length == 0:
            return queries.new_zeros(queries.shape[:2])
        count = min(max(length // _KEYS_PER_RUN, _FEWEST_RUNS), _MOST_RUNS)
        starts = range(0, length, max(_RUN, -(-length // count)))
        runs = [self._keys_t[:, :, start : min(start + _RUN, length)] for start in starts]
        sample = torch.cat(runs, 2)
        device = queries.device
        places = torch.cat([torch.arange(start, min(start + _RUN, length), device=device) for start in starts])
        own = torch.arange(queries.shape[1], device=device)
        scores = torch.bmm(queries, sample)
        if can_weigh(scores):
            last = own if self._causal else own.new_full(own.shape, length)
            return largest_of_first(scores, torch.searchsorted(places, last, right=True))
        if self._causal:
            scores.masked_fill_(places > own.unsqueeze(1), -torch.inf)
        return scores.amax(-1)

    def _true_maxima(self, part: tuple[slice, slice], spans: list[_Span]) -> torch.Tensor:
        """The largest visible score, 0 where nothing is visible: ``[heads, queries]``."""
        queries = self._queries[part]
        largest = queries.new_full(queries.shape[:2], -torch.inf)
        for span in spans:
            scores = torch.bmm(queries, self._keys_t[part[0], :, span.first : span.padded])
            self._hide(scores, span, part[1], -torch.inf)
            torch.maximum(largest, scores.amax(-1), out=largest)
        return largest.masked_fill_(largest == -torch.inf, 0.0)


def _as_divisor(sums: torch.Tensor) -> torch.Tensor:
    return sums.clamp_min(_TINY).unsqueeze(-1)
