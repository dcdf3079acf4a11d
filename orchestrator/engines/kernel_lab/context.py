"""The cached context of a dense MLA prefill, chunk by chunk in a workspace of limited rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch

from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import ContextChunk, ContextPlan, plan_context_chunks

LATENT_GROUP = "latent"
"""Name of the group of latent caches."""


class ContextSource(Protocol):
    """Where a dense layer gets the rows of a context chunk from.

    One rank alone copies them out of its cache (:class:`PagedContext`); under decode context parallelism each rank
    copies its share, and the shares are gathered from all ranks and put in order (``dcp.source.ShardedContext``).

    Attributes:
        manager: Of the workspace.
    """

    manager: WorkspaceManager

    @property
    def workspace_rows(self) -> int:
        """Rows of a chunk at most."""
        ...

    @property
    def reserved_rows(self) -> int:
        """Rows of the workspace's buffer, with those that gathering takes beside a chunk."""
        ...

    def plan(self, batch: Batch) -> ContextPlan:
        """The chunks of a batch's contexts; the same for all layers of a step."""
        ...

    def fill(self, chunk: ContextChunk, members: Sequence[Member], cache: PagedCache, tally: Tally) -> torch.Tensor:
        """Rows of the chunk's pieces, one after the other without gaps: ``[sum of the lengths, width]``.

        They lie in a buffer that the next call overwrites.

        Args:
            members: Those of the chunk, as many as it has pieces.
            cache: Of the layer.
            tally: Gets the rows, bytes and launches.
        """
        ...


class PagedContext:
    """The contexts of one rank that holds all rows.

    Args:
        manager: A manager of this workspace alone; it is grown to its size and locked.
        workspace_rows: Rows, at least one aligned step.
        block_size: Tokens in a block.
        width: Elements of a row.
        rule: Planning rule, see :func:`orchestrator.planning.plan_context_chunks`.
        align_to_block: Whether pieces begin on a block; sparse backends do without.

    Raises:
        LabError: ``workspace-too-small`` or ``out-of-memory``.
    """

    def __init__(
        self,
        manager: WorkspaceManager,
        kernels: Kernels,
        *,
        workspace_rows: int,
        block_size: int,
        width: int,
        dtype: torch.dtype,
        rule: str = "0.28",
        align_to_block: bool = True,
    ) -> None:
        step = block_size if align_to_block else 1
        if workspace_rows < step:
            raise LabError(
                "workspace-too-small", f"a workspace of {workspace_rows} rows holds no aligned chunk of {step} rows"
            )
        self.manager = manager
        self.workspace_rows = workspace_rows
        self._kernels, self._block_size, self._rule, self._aligned = kernels, block_size, rule, align_to_block
        self._width, self._dtype = width, dtype
        manager.get_simultaneous(((workspace_rows, width), dtype))
        manager.lock()
        manager.reset_peak()

    @property
    def reserved_rows(self) -> int:
        return self.workspace_rows

    def plan(self, batch: Batch) -> ContextPlan:
        return plan_context_chunks(
            batch.seq_lens - batch.query_lens,
            workspace_rows=self.workspace_rows,
            block_size=self._block_size,
            rule=self._rule,
            align_to_block=self._aligned,
        )

    def fill(self, chunk: ContextChunk, members: Sequence[Member], cache: PagedCache, tally: Tally) -> torch.Tensor:
        (rows,) = self.manager.get_simultaneous(((chunk.rows, self._width), self._dtype))
        offsets = accumulate(chunk.lengths, initial=0)
        pieces = [
            Piece(member.tables[LATENT_GROUP], start, count, to)
            for member, start, count, to in zip(members, chunk.starts, chunk.lengths, offsets, strict=False)
            if count
        ]
        self._kernels.gather(cache, pieces, rows)
        tally.launches += 1
        tally.gathered_rows += rows.shape[0]
        tally.gather_bytes += rows.shape[0] * (cache.row_bytes + rows.shape[1] * rows.element_size())
        return rows
