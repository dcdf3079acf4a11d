"""Prefill and decode attention of dense MLA layers, and of sparse ones that mask what their indexer did not select.

The new tokens of a step attend to themselves; the context of earlier steps is gathered chunk by chunk into the
workspace, expanded there to keys and values of every head, attended to, and merged by log-sum-exp. Source of the steps:
``_compute_prefill_context`` of vLLM's ``MLACommonBaseImpl``. A decode step attends to the latent rows themselves, with
the expansion absorbed into the query (DeepSeek-V2, section 2.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orchestrator.engines.kernel_lab.attention import KEY_STEP, Partial, merge_into
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.content import Hashes, picked
from orchestrator.engines.kernel_lab.context import LATENT_GROUP, ContextSource
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.selection import hidden_mask, select_rows
from orchestrator.engines.kernel_lab.shapes import DenseShape
from orchestrator.engines.kernel_lab.sparse import attend_latent
from orchestrator.engines.kernel_lab.step_buffers import padded_by_head, room_for_results
from orchestrator.engines.kernel_lab.workspace import round_up
from orchestrator.planning import ContextPlan


class DenseLayer:
    """One layer.

    Args:
        salt: Picks this layer's rows and queries out of the tables.
        query_table: Queries in base 2, ``[any, heads, key]``.
        row_table: Latent rows, ``[any, latent]``.
        key_weight: Expands a latent vector to the keys of all heads, ``[heads * qk_nope_head_dim, kv_lora_rank]``.
        value_weight: To their values, ``[kv_lora_rank, heads * v_head_dim]``.
        share: This rank's part under decode context parallelism; the heads above are then its own. None: one rank has
            all.
    """

    def __init__(
        self,
        shape: DenseShape,
        kernels: Kernels,
        cache: PagedCache,
        *,
        salt: int,
        query_table: torch.Tensor,
        row_table: torch.Tensor,
        key_weight: torch.Tensor,
        value_weight: torch.Tensor,
        share: Share | None = None,
    ) -> None:
        self.shape = shape
        self._share = share
        self._kernels, self._cache, self._salt = kernels, cache, salt
        self._query_table, self._row_table = query_table, row_table
        self.key_weight, self.value_weight = key_weight, value_weight

    @property
    def dtype(self) -> torch.dtype:
        """Of its products."""
        return self._row_table.dtype

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._row_table.device

    def rows(self, hashes: Hashes) -> torch.Tensor:
        """Latent rows of tokens, ``[hashes, latent]``."""
        return self._row_table[picked(hashes, self._salt, self._row_table.shape[0], self.device)]

    def write(self, member: Member) -> None:
        """Put the rows of a member's new tokens into the cache."""
        start, hashes = member.context_len, member.new_hashes
        if self._share is not None:
            start, hashes = self._share.local_len(start), self._share.kept(start, hashes)
        self._cache.write(member.tables[LATENT_GROUP], start, self.rows(hashes))

    def queries(self, batch: Batch) -> torch.Tensor:
        """Queries of a batch, ``[tokens, heads, key]``, in a buffer that the next call overwrites."""
        ids = picked(batch.new_hashes, self._salt, self._query_table.shape[0], batch.device)
        queries = self._kernels.scratch.take("queries", (batch.tokens, *self._query_table.shape[1:]), self.dtype)
        return torch.index_select(self._query_table, 0, ids, out=queries)

    def prefill(
        self, batch: Batch, plan: ContextPlan, source: ContextSource, selected: torch.Tensor | None, tally: Tally
    ) -> torch.Tensor:
        """Attention of a batch's prefills, ``[tokens, heads, value]``, in a buffer that the next call overwrites.

        Args:
            plan: The chunks of its contexts.
            selected: Tokens that each query selects, ``int32``, ``[tokens, most]``; None for a dense layer.
        """
        shape, scratch = self.shape, self._kernels.scratch
        queries = padded_by_head(self._split(batch, self.queries(batch)), scratch)
        totals = room_for_results(queries, shape.v_head_dim, scratch)
        rows = [self.rows(member.new_hashes) for member in batch.members]
        chosen = [None] * len(queries) if selected is None else self._split(batch, selected)
        with tally.timed("prefill"):
            with tally.timed("attend"):
                for one in zip(batch.members, rows, queries, chosen, totals, strict=True):
                    self._own(*one, tally)
            for chunk in plan:
                members = slice(chunk.request_start, chunk.request_end)
                with tally.timed("gather"):
                    gathered = source.fill(chunk, batch.members[members], self._cache, tally)
                with tally.timed("attend"):
                    self._context(
                        list(zip(chunk.starts, chunk.lengths, strict=True)),
                        gathered,
                        queries[members],
                        chosen[members],
                        totals[members],
                        [member.query_len for member in batch.members[members]],
                        tally,
                    )
                tally.chunks += 1
                # The expansion, attention and the merge.
                tally.launches += 3
            tally.workspace_entries += len(plan) > 0
            out = scratch.take("outputs", (batch.tokens, shape.heads, shape.v_head_dim), self.dtype)
            for member, total in zip(batch.members, totals, strict=True):
                out[member.first : member.first + member.query_len] = total.out[:, : member.query_len].transpose(0, 1)
        return out

    def decode(self, batch: Batch) -> torch.Tensor:
        """Attention of requests with one new token each, ``[members, heads, value]``. It takes no workspace."""
        shape = self.shape
        queries = self.queries(batch)
        key_weight = self.key_weight.view(shape.heads, shape.qk_nope_head_dim, shape.kv_lora_rank)
        value_weight = self.value_weight.view(shape.kv_lora_rank, shape.heads, shape.v_head_dim).transpose(0, 1)
        nope, rope = queries.split([shape.qk_nope_head_dim, shape.qk_rope_head_dim], dim=2)
        absorbed = torch.stack([torch.bmm(one.unsqueeze(1), key_weight).squeeze(1) for one in nope])
        latent = self._latent(batch, torch.cat((absorbed, rope), 2)).to(queries.dtype)
        return torch.stack([torch.bmm(one.unsqueeze(1), value_weight).squeeze(1) for one in latent])

    def _latent(self, batch: Batch, queries: torch.Tensor) -> torch.Tensor:
        """Attention of the newest tokens over latent rows, fp32, ``[members, heads, kv_lora_rank]``.

        Args:
            queries: ``[members, heads, latent]``.
        """
        if self._share is not None:
            queries = self._share.joined_heads(queries)
        outs, lses = [], []
        for query, member in zip(queries, batch.members, strict=True):
            rows = self._visible_rows(member)
            if rows.shape[0]:
                out, lse = attend_latent(query, rows, self.shape.kv_lora_rank)
            else:
                out = torch.zeros(query.shape[0], self.shape.kv_lora_rank, device=query.device)
                lse = torch.full((query.shape[0],), -torch.inf, device=query.device)
            outs.append(out)
            lses.append(lse)
        if self._share is None:
            return torch.stack(outs)
        return self._share.merged(Partial(torch.stack(outs, 1), torch.stack(lses, 1))).out.transpose(0, 1)

    def _own(
        self,
        member: Member,
        rows: torch.Tensor,
        query: torch.Tensor,
        chosen: torch.Tensor | None,
        total: Partial,
        tally: Tally,
    ) -> None:
        """Attention of the new tokens, whose latent rows these are, among themselves."""
        count = member.query_len
        keys, values = self._expanded(rows)
        hidden = None
        if chosen is not None:
            hidden = hidden_mask(chosen, member.context_len, count, query.shape[1])
        self._attend(query, (keys, values), rows, (0, count), hidden, total, causal=hidden is None)
        pairs = count * (count + 1) // 2 if chosen is None else int((chosen >= member.context_len).sum())
        tally.flops += self.shape.expansion_flops(count) + self.shape.attention_flops(pairs)

    def _context(
        self,
        pieces: Sequence[tuple[int, int]],
        rows: torch.Tensor,
        queries: Sequence[torch.Tensor],
        chosen: Sequence[torch.Tensor | None],
        totals: Sequence[Partial],
        counts: Sequence[int],
        tally: Tally,
    ) -> None:
        """Attention over one filling of the workspace, merged into what is there."""
        expanded = self._expanded(rows)
        tally.flops += self.shape.expansion_flops(rows.shape[0])
        at = 0
        for (start, count), query, own, total, tokens in zip(pieces, queries, chosen, totals, counts, strict=True):
            if count == 0:
                continue
            hidden, pairs = None, tokens * count
            if own is not None:
                hidden = hidden_mask(own, start, count, query.shape[1])
                pairs = int(((own >= start) & (own < start + count)).sum())
            part = self._scratch_partial("part", query.shape[1])
            self._attend(query, expanded, rows, (at, at + count), hidden, part, causal=False)
            merge_into(total, part)
            tally.flops += self.shape.attention_flops(pairs)
            at += count

    def _expanded(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys without their rotary part, ``[heads, nope, rows]``, and values, ``[rows + KEY_STEP, heads, value]``, of
        all heads; the values after the last row are 0.

        Keys have their elements along the rows, as attention takes them; no copy turns them round.
        """
        shape, dtype = self.shape, rows.dtype
        count = rows.shape[0]
        latent = rows[:, : shape.kv_lora_rank]
        keys = self._kernels.scratch.take("keys", (self.key_weight.shape[0], count), dtype)
        values = self._kernels.scratch.take("values", (count + KEY_STEP, self.value_weight.shape[1]), dtype)
        values[count:] = 0
        torch.mm(self.key_weight, latent.t(), out=keys)
        torch.mm(latent, self.value_weight, out=values[:count])
        return (
            keys.view(shape.heads, shape.qk_nope_head_dim, count),
            values.view(-1, shape.heads, shape.v_head_dim),
        )

    def _attend(
        self,
        query: torch.Tensor,
        expanded: tuple[torch.Tensor, torch.Tensor],
        rows: torch.Tensor,
        span: tuple[int, int],
        hidden: torch.Tensor | None,
        into: Partial,
        *,
        causal: bool,
    ) -> None:
        """Attention over the rows of a span, whose keys get their rotary part here."""
        shape, (first, last) = self.shape, span
        count = last - first
        padded = round_up(count, KEY_STEP)
        keys = self._kernels.scratch.take("joined", (shape.heads, shape.key, padded), rows.dtype)
        keys[:, : shape.qk_nope_head_dim, :count] = expanded[0][:, :, first:last]
        # Turned round once, not for each head.
        keys[:, shape.qk_nope_head_dim :, :count] = rows[first:last, shape.kv_lora_rank :].t().contiguous()
        # What stands in the padding is finite and weighs nothing.
        values = expanded[1][first : first + padded].transpose(0, 1)
        self._kernels.attend(query, keys, values, count, causal=causal, hidden=hidden, into=into)

    def _visible_rows(self, member: Member) -> torch.Tensor:
        """The latent rows that a member's newest token attends to and that this rank keeps."""
        table = member.tables[LATENT_GROUP]
        if self.shape.index_topk is None:
            count = member.seq_len if self._share is None else self._share.local_len(member.seq_len)
            rows = self._kernels.scratch.take("latent", (count, self.shape.latent), self._row_table.dtype)
            self._kernels.gather(self._cache, [Piece(table, 0, count, 0)], rows)
            return rows
        position = torch.tensor([member.seq_len - 1], device=self._row_table.device)
        chosen = select_rows(position, ratio=1, topk=self.shape.index_topk)[0]
        wanted = chosen[chosen >= 0].long()
        if self._share is not None:
            wanted = self._share.local_rows(wanted)
        return self._cache.read(table, wanted, self._row_table.dtype)

    def _scratch_partial(self, name: str, count: int) -> Partial:
        shape, take = self.shape, self._kernels.scratch.take
        return Partial(
            take(f"{name} out", (shape.heads, count, shape.v_head_dim), torch.float32),
            take(f"{name} lse", (shape.heads, count), torch.float32),
        )

    @staticmethod
    def _split(batch: Batch, tensor: torch.Tensor) -> list[torch.Tensor]:
        return list(tensor.split([member.query_len for member in batch.members]))
