"""The cached context of a dense MLA prefill whose rows are spread over ranks.

Each rank copies its share of a chunk out of its cache, padded to whole runs so that all shares are of one size; an
all-gather puts every share on every rank; the rows are then brought into the order of the tokens. Source of the steps:
``_context_parallel_compute_prefill_context`` and ``reorg_kvcache`` of vLLM. Theirs leaves the rows of a request ordered
by rank, which attention does not mind; here a mask of selected tokens, and equal rounding, want the order of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.context import LATENT_GROUP
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.sharding import Sharding
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.gather import Piece
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import ContextChunk, ContextPlan, plan_context_chunks, workspace_alignment


class ShardedContext:
    """The contexts of one rank of several. All ranks must ask for the same chunks in the same order.

    Of W workspace rows a chunk takes at most W / R on each of R ranks. The workspace has W + W / R rows: those of this
    rank first, then those of all. The rows in order lie beside it, as in vLLM.

    Args:
        manager: A manager of this workspace alone; it is grown to its size and locked.
        workspace_rows: W.
        block_size: Rows in a block of a rank's cache, a multiple of the interleave.
        width: Elements of a row.
        rule: ``"0.28"`` or ``"pr-50484"``: under the older rules pieces begin within a turn of the ranks.
        align_to_block: Whether pieces begin on a block; sparse backends do without.

    Raises:
        LabError: ``workspace-too-small``, ``lab-shape`` or ``out-of-memory``.
    """

    def __init__(
        self,
        manager: WorkspaceManager,
        kernels: Kernels,
        share: Share,
        *,
        workspace_rows: int,
        block_size: int,
        width: int,
        dtype: torch.dtype,
        rule: str = "0.28",
        align_to_block: bool = True,
    ) -> None:
        ranks, run = share.ranks, share.sharding.interleave
        if block_size % run:
            raise LabError("lab-shape", f"the interleave must divide the block size {block_size}, got {run}")
        if workspace_rows % ranks:
            raise LabError("lab-shape", f"workspace rows must be a multiple of {ranks} ranks, got {workspace_rows}")
        step = workspace_alignment(block_size=block_size if align_to_block else run, dcp=ranks, interleave=run)
        if workspace_rows < step:
            raise LabError(
                "workspace-too-small",
                f"a workspace of {workspace_rows} rows holds no aligned chunk of {step} rows over {ranks} ranks",
            )
        self.manager, self.workspace_rows = manager, workspace_rows
        self._kernels, self._share, self._block_size = kernels, share, block_size
        self._rule, self._aligned = rule, align_to_block
        self._width, self._dtype = width, dtype
        manager.get_simultaneous(((self.reserved_rows, width), dtype))
        manager.lock()
        manager.reset_peak()

    @property
    def reserved_rows(self) -> int:
        return self.workspace_rows + self.workspace_rows // self._share.ranks

    def plan(self, batch: Batch) -> ContextPlan:
        return plan_context_chunks(
            batch.seq_lens - batch.query_lens,
            workspace_rows=self.workspace_rows,
            block_size=self._block_size,
            dcp=self._share.ranks,
            interleave=self._share.sharding.interleave,
            rule=self._rule,
            align_to_block=self._aligned,
        )

    def fill(self, chunk: ContextChunk, members: Sequence[Member], cache: PagedCache, tally: Tally) -> torch.Tensor:
        ranks, sharding = self._share.ranks, self._share.sharding
        shares = [sharding.padded_rows(count) for count in chunk.lengths]
        rows = sum(shares)
        (taken,) = self.manager.get_simultaneous((((1 + ranks) * rows, self._width), self._dtype))
        own, gathered = taken[:rows], taken[rows:].view(ranks, rows, self._width)
        pieces, at = [], 0
        for member, start, count in zip(members, chunk.starts, shares, strict=True):
            pieces.append(Piece(member.tables[LATENT_GROUP], sharding.padded_rows(start), count, at))
            at += count
        self._kernels.gather(cache, pieces, own)
        with tally.timed("all-gather"):
            self._share.collective.all_gather(gathered, own)
        ordered = self._kernels.scratch.take("ordered", (sum(chunk.lengths), self._width), self._dtype)
        reorganise(gathered, chunk.lengths, sharding, ordered)
        row_bytes = self._width * self._dtype.itemsize
        # The gather, the all-gather and the reorganisation.
        tally.launches += 3
        tally.gathered_rows += ordered.shape[0]
        tally.padded_rows += ranks * rows - ordered.shape[0]
        tally.gather_bytes += rows * (cache.row_bytes + row_bytes) + 2 * ordered.shape[0] * row_bytes
        tally.all_gather_bytes += (ranks - 1) * rows * row_bytes
        return ordered


def reorganise(gathered: torch.Tensor, lengths: Sequence[int], sharding: Sharding, out: torch.Tensor) -> None:
    """Bring the shares of all ranks into the order of the tokens, without their padding.

    Args:
        gathered: ``[ranks, rows, width]``: of each rank the padded shares of all pieces, one after the other. A piece
            begins with a turn of the ranks.
        lengths: Tokens of each piece.
        out: ``[sum of the lengths, width]``.
    """
    ranks, run = sharding.ranks, sharding.interleave
    width, share_at, at = gathered.shape[2], 0, 0
    for length in lengths:
        turns, rest = divmod(length, sharding.turn)
        whole = turns * run
        if turns:
            shares = gathered[:, share_at : share_at + whole].view(ranks, turns, run, width)
            out[at : at + turns * sharding.turn].view(turns, ranks, run, width).copy_(shares.transpose(0, 1))
        at += turns * sharding.turn
        # The last turn may end within any rank's run.
        for rank in range(-(-rest // run)):
            count = min(run, rest - rank * run)
            out[at : at + count] = gathered[rank, share_at + whole : share_at + whole + count]
            at += count
        share_at += sharding.padded_rows(length)
