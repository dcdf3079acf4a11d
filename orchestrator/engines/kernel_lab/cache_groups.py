"""The groups of caches of an engine: what layers of a kind share, namely the blocks of each request."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.caches import BlockPool, BlockTable, PagedCache
from orchestrator.engines.kernel_lab.content import salt_of
from orchestrator.engines.kernel_lab.context import LATENT_GROUP
from orchestrator.engines.kernel_lab.dsv4 import WINDOW_GROUP, compressed_group
from orchestrator.engines.kernel_lab.rows import RowFormat


@dataclass(frozen=True, kw_only=True)
class CacheGroup:
    """Blocks that all layers of a group use in the same way.

    Attributes:
        most_blocks: Blocks of one request at most, however long it is: a sliding window keeps a ring; None for as many
            as its tokens fill.
    """

    pool: BlockPool
    tokens_per_block: int
    most_blocks: int | None = None

    def blocks_for(self, tokens: int) -> int:
        """Blocks of a request of so many tokens."""
        wanted = -(-tokens // self.tokens_per_block)
        return wanted if self.most_blocks is None else min(wanted, self.most_blocks)

    def new_cache(self, rows: RowFormat, device: torch.device) -> PagedCache:
        """A cache for one layer."""
        return PagedCache(self.pool.size, self.pool.rows_per_block, rows, device=device)


class CacheGroups:
    """All groups of an engine, by name."""

    def __init__(self, args: LabArgs, device: torch.device) -> None:
        size = args.tokens_per_block
        self.by_name: dict[str, CacheGroup] = {}
        if args.mla_kind is not None:
            self._add(LATENT_GROUP, args, args.blocks, size, device, tokens=size * args.decode_context_parallel_size)
        for kind in args.v4_kinds:
            if kind.has_compressed:
                rows = size // kind.compress_ratio
                self._add(compressed_group(kind), args, args.blocks, rows, device)
        if args.v4_kinds:
            # The tokens before the window's last one, a whole step, and one block because neither need begin on one.
            ring = -(-(args.window - 1 + args.max_num_batched_tokens) // size) + 1
            ring = min(ring, -(-args.max_model_len // size))
            self._add(WINDOW_GROUP, args, args.max_num_seqs * ring, size, device, most_blocks=ring)

    def _add(
        self,
        name: str,
        args: LabArgs,
        blocks: int,
        rows: int,
        device: torch.device,
        *,
        tokens: int | None = None,
        most_blocks: int | None = None,
    ) -> None:
        pool = BlockPool(blocks, rows, seed=salt_of(args.seed, 3, len(self.by_name)), device=device)
        self.by_name[name] = CacheGroup(
            pool=pool, tokens_per_block=args.tokens_per_block if tokens is None else tokens, most_blocks=most_blocks
        )

    def largest_request(self) -> int:
        """Tokens of the largest request that the blocks of all groups can ever hold."""
        pools = [group for group in self.by_name.values() if group.most_blocks is None]
        return min((group.pool.size * group.tokens_per_block for group in pools), default=2**62)

    def allocate(self, tokens: int) -> dict[str, BlockTable] | None:
        """Blocks for a request in every group; None if some group has not enough now."""
        if any(group.blocks_for(tokens) > group.pool.free_blocks for group in self.by_name.values()):
            return None
        return {name: group.pool.allocate(group.blocks_for(tokens)) for name, group in self.by_name.items()}

    def free(self, tables: dict[str, BlockTable]) -> None:
        """Take the blocks of a request back."""
        for name, table in tables.items():
            self.by_name[name].pool.free(table)
        tables.clear()
