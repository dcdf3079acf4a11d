"""Prefill and decode attention of DeepSeek-V4 layers: a sliding window, and compressed rows of the whole request.

For each chunk of the plan the layer takes ``(requests, width, row)`` from the workspace, gathers the compressed rows to
the front of every request's share and the window rows behind them, combines the indices of both and runs sparse
attention over them. Source of the steps and of their order: ``_forward_prefill`` of vLLM's FlashMLA path.
"""

from __future__ import annotations

from typing import Final

import torch

from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.content import Hashes, compressed_hashes, picked
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.selection import select_rows
from orchestrator.engines.kernel_lab.shapes import V4Shape
from orchestrator.engines.kernel_lab.sparse import QuerySpan, SparseCall, attend_latent
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import Chunk, ChunkPlan, LayerType

WINDOW_GROUP: Final = "window"
"""Name of the group of sliding-window caches."""


def compressed_group(kind: LayerType) -> str:
    """Name of the group of a kind's compressed caches."""
    return f"compressed {kind.compress_ratio}"


class V4Layer:
    """One layer.

    Args:
        salt: Picks this layer's rows and queries out of the tables.
        query_table: Queries in base 2, ``[any, heads, width]``.
        row_table: Cached rows in their stored form, ``[any, stored]``.
        sink: Weight that goes nowhere, as a score in base 2, fp32, ``[heads]``.
        window_cache: Rows of the sliding window.
        compressed_cache: Compressed rows; None for a layer without.
    """

    def __init__(
        self,
        kind: LayerType,
        shape: V4Shape,
        kernels: Kernels,
        manager: WorkspaceManager,
        *,
        salt: int,
        query_table: torch.Tensor,
        row_table: torch.Tensor,
        sink: torch.Tensor,
        window_cache: PagedCache,
        compressed_cache: PagedCache | None,
    ) -> None:
        self.kind, self.shape, self.sink = kind, shape, sink
        self._kernels, self._manager, self._salt = kernels, manager, salt
        self._query_table, self._row_table = query_table, row_table
        self._window_cache, self._compressed_cache = window_cache, compressed_cache
        self._group = compressed_group(kind)

    @property
    def dtype(self) -> torch.dtype:
        """Of its products."""
        return self._query_table.dtype

    def rows(self, hashes: Hashes) -> torch.Tensor:
        """Rows of tokens, or of groups of tokens, as the caches give them back: ``[hashes, width]``."""
        stored = self._stored_rows(hashes)
        out = torch.empty(stored.shape[0], self.shape.width, dtype=self.dtype, device=stored.device)
        self._window_cache.format.decode(stored, out)
        return out

    def write(self, member: Member) -> None:
        """Put the rows of a member's new tokens, and the compressed rows that they complete, into the caches."""
        self._window_cache.write(member.tables[WINDOW_GROUP], member.context_len, self._stored_rows(member.new_hashes))
        if self._compressed_cache is None:
            return
        ratio = self.kind.compress_ratio
        first, last = member.context_len // ratio, member.seq_len // ratio
        hashes = compressed_hashes(member.hashes[first * ratio : last * ratio], ratio)
        self._compressed_cache.write(member.tables[self._group], first, self._stored_rows(hashes))

    def queries(self, batch: Batch) -> torch.Tensor:
        """Queries of a batch, ``[tokens, heads, width]``, in a buffer that the next call overwrites."""
        ids = picked(batch.new_hashes, self._salt, self._query_table.shape[0], batch.device)
        queries = self._kernels.scratch.take("queries", (batch.tokens, *self._query_table.shape[1:]), self.dtype)
        return torch.index_select(self._query_table, 0, ids, out=queries)

    def prefill(self, batch: Batch, plan: ChunkPlan, selected: torch.Tensor, tally: Tally) -> torch.Tensor:
        """Attention of a batch's prefills, ``[tokens, heads, width]``, in a buffer that the next call overwrites.

        Args:
            plan: Its chunks.
            selected: Compressed rows of each query, ``int32``, ``[tokens, most]``, -1 for none.
        """
        queries = self.queries(batch)
        out = self._kernels.scratch.take("outputs", tuple(queries.shape), queries.dtype)
        with tally.timed("prefill"):
            for chunk in plan:
                places = range(chunk.start, chunk.end)
                order = places if plan.permutation is None else plan.permutation[chunk.start : chunk.end].tolist()
                self._chunk(chunk, [batch.members[place] for place in order], queries, out, selected, tally)
        return out

    def decode(self, batch: Batch) -> torch.Tensor:
        """Attention of requests with one new token each, ``[members, heads, width]``. It takes no workspace."""
        queries = self.queries(batch)
        out = torch.empty_like(queries)
        for place, member in enumerate(batch.members):
            rows = self._visible_rows(member, queries.dtype)
            out[place], _ = attend_latent(queries[place], rows, self.shape.width, sink=self.sink)
        return out

    def _chunk(
        self,
        chunk: Chunk,
        members: list[Member],
        queries: torch.Tensor,
        out: torch.Tensor,
        selected: torch.Tensor,
        tally: Tally,
    ) -> None:
        shape = self.shape
        rows, indices, lengths = self._manager.get_simultaneous(
            *shape.request(self.kind, queries.dtype, chunk.requests, chunk.width)
        )
        with tally.timed("gather"):
            gathered = self._gather(chunk, members, rows, tally)
        spans = _spans(members)
        tokens = spans[-1].index + spans[-1].count
        indices, lengths = indices[:tokens], lengths[:tokens]
        combine_indices(chunk, members, selected, shape.window, indices, lengths)
        with tally.timed("attend"):
            self._kernels.sparse_attention(SparseCall(queries, rows, indices, lengths, spans, self.sink, out))
        tally.chunks += 1
        # Two gathers, the combination of indices and attention; without compressed rows one gather.
        tally.launches += 4 if self.kind.has_compressed else 3
        tally.gathered_rows += gathered
        tally.padded_rows += chunk.area - gathered
        tally.flops += 4 * shape.heads * shape.width * int(lengths.sum())

    def _gather(self, chunk: Chunk, members: list[Member], rows: torch.Tensor, tally: Tally) -> int:
        """Fill the workspace; return how many rows were copied."""
        flat = rows.view(-1, self.shape.width)
        window, compressed = [], []
        for place, member in enumerate(members):
            count = gather_len(member, self.shape.window)
            to = place * chunk.width
            table = member.tables[WINDOW_GROUP]
            window.append(Piece(table, member.seq_len - count, count, to + chunk.compressed))
            if self._compressed_cache is not None:
                compressed_rows = member.seq_len // self.kind.compress_ratio
                compressed.append(Piece(member.tables[self._group], 0, compressed_rows, to))
        if self._compressed_cache is not None:
            self._kernels.gather(self._compressed_cache, compressed, flat)
        self._kernels.gather(self._window_cache, window, flat)
        gathered = sum(piece.count for piece in (*window, *compressed))
        tally.gather_bytes += gathered * (self._window_cache.row_bytes + flat.shape[1] * flat.element_size())
        return gathered

    def _visible_rows(self, member: Member, dtype: torch.dtype) -> torch.Tensor:
        """All rows that a member's newest token attends to, ``[rows, width]``."""
        count = min(member.seq_len, self.shape.window)
        window = torch.empty(count, self.shape.width, dtype=dtype, device=self.sink.device)
        piece = Piece(member.tables[WINDOW_GROUP], member.seq_len - count, count, 0)
        self._kernels.gather(self._window_cache, [piece], window)
        if self._compressed_cache is None or member.seq_len < self.kind.compress_ratio:
            return window
        position = torch.tensor([member.seq_len - 1], device=self.sink.device)
        chosen = select_rows(position, ratio=self.kind.compress_ratio, topk=self.shape.topk_of(self.kind))[0]
        rows = self._compressed_cache.read(member.tables[self._group], chosen[chosen >= 0].long(), dtype)
        return torch.cat((rows, window))

    def _stored_rows(self, hashes: Hashes) -> torch.Tensor:
        return self._row_table[picked(hashes, self._salt, self._row_table.shape[0], self._row_table.device)]


def gather_len(member: Member, window: int) -> int:
    """Window rows of a prefill: those of its new tokens and of the ``window - 1`` tokens before them."""
    return member.query_len + min(member.context_len, window - 1)


def combine_indices(
    chunk: Chunk,
    members: list[Member],
    selected: torch.Tensor,
    window: int,
    indices: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Write which workspace rows each query of a chunk attends to: compressed rows first, window rows after them.

    Args:
        chunk: Its ``compressed`` and ``width`` say where rows lie.
        members: In the order of the chunk.
        selected: Compressed rows of each query of the step, ``int32``, ``[tokens, most]``, -1 for none.
        window: Tokens.
        indices: ``int32``, ``[queries of the chunk, columns]``; left-over columns among the first ``most + window``
            become -1, those behind them are left alone.
        lengths: ``int32``, ``[queries of the chunk]``.
    """
    device = indices.device
    counts = torch.tensor([member.query_len for member in members], device=device)
    shares = torch.arange(len(members), device=device).repeat_interleave(counts).unsqueeze(1) * chunk.width
    gathered_from = torch.tensor([member.seq_len - gather_len(member, window) for member in members], device=device)
    positions = torch.cat([torch.arange(member.context_len, member.seq_len, device=device) for member in members])
    own = torch.cat([selected[member.first : member.first + member.query_len] for member in members])

    is_chosen = own >= 0
    chosen = is_chosen.sum(1, keepdim=True)
    used = indices[:, : own.shape[1] + window]
    used.fill_(-1)
    used[:, : own.shape[1]] = torch.where(is_chosen, own + shares, -1)

    visible = (positions + 1).clamp_max(window).unsqueeze(1)
    first = positions.unsqueeze(1) + 1 - visible - gathered_from.repeat_interleave(counts).unsqueeze(1)
    places = torch.arange(window, device=device).unsqueeze(0)
    rows = torch.where(places < visible, shares + chunk.compressed + first + places, -1)
    used.scatter_(1, chosen + places, rows.to(torch.int32))
    lengths.copy_((chosen + visible).squeeze(1))


def _spans(members: list[Member]) -> list[QuerySpan]:
    spans, index = [], 0
    for place, member in enumerate(members):
        spans.append(QuerySpan(member.first, member.query_len, index, place))
        index += member.query_len
    return spans
