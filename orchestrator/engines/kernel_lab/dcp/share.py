"""One rank's share of the layers: the rows that it keeps and the heads that it computes."""

from __future__ import annotations

import numpy as np
import torch

from orchestrator.engines.kernel_lab.attention import Partial, merge_into
from orchestrator.engines.kernel_lab.content import Hashes
from orchestrator.engines.kernel_lab.dcp.collectives import Collective
from orchestrator.engines.kernel_lab.dcp.sharding import Sharding


class Share:
    """What a layer of one rank has to know of the others.

    All ranks also split the heads: each computes ``heads / ranks`` of them, as under tensor parallelism of the same
    size, which is what vLLM shares decode context parallelism's ranks with.

    Args:
        interleave: Consecutive tokens that one rank keeps.
    """

    def __init__(self, collective: Collective, interleave: int) -> None:
        self.collective = collective
        self.rank, self.ranks = collective.rank, collective.ranks
        # One rank keeps all in one row: vLLM and the planner ignore the interleave then.
        self.sharding = Sharding(collective.ranks, interleave if collective.ranks > 1 else 1)

    def heads(self, all_heads: int) -> slice:
        """Of all heads, those of this rank."""
        own = all_heads // self.ranks
        return slice(self.rank * own, (self.rank + 1) * own)

    def local_len(self, tokens: int) -> int:
        """Rows that this rank keeps of the first ``tokens`` tokens."""
        return self.sharding.local_len(tokens, self.rank)

    def kept(self, first: int, hashes: Hashes) -> Hashes:
        """Those of the tokens' hashes whose rows this rank keeps; the tokens begin at position ``first``."""
        return hashes[self.sharding.is_kept(first, first + hashes.size, self.rank)]

    def local_rows(self, positions: torch.Tensor) -> torch.Tensor:
        """Rows in this rank's cache of the tokens among ``positions`` that it keeps, ``int64``."""
        tokens = positions.cpu().numpy().astype(np.int64)
        own = tokens[tokens // self.sharding.interleave % self.ranks == self.rank]
        return torch.from_numpy(self.sharding.local_rows(own)).to(positions.device)

    def joined_heads(self, own: torch.Tensor) -> torch.Tensor:
        """Each rank's heads, ``[any, heads / ranks, ...]``, as those of all ranks: ``[any, heads, ...]``."""
        gathered = own.new_empty(self.ranks, *own.shape)
        self.collective.all_gather(gathered, own.contiguous())
        return gathered.transpose(0, 1).flatten(1, 2)

    def merged(self, parts: Partial) -> Partial:
        """Join the attention of all heads over each rank's rows to that of this rank's heads over all rows.

        Args:
            parts: Of this rank's rows, with the heads first.

        Source of the rule: ``cp_lse_ag_out_rs`` of vLLM, which scatters the sum where this gathers the terms.
        """
        packed = torch.cat((parts.out, parts.lse.unsqueeze(-1)), -1)
        gathered = packed.new_empty(self.ranks, *packed.shape)
        self.collective.all_gather(gathered, packed)
        own = gathered[:, self.heads(packed.shape[0])]
        total = Partial(own[0, ..., :-1].contiguous(), own[0, ..., -1].contiguous())
        for other in own[1:]:
            merge_into(total, Partial(other[..., :-1], other[..., -1]))
        return total
