"""Ranks on threads of one process, without an engine around them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch

from orchestrator.engines.kernel_lab.dcp.collectives import Exchange, LoopbackCollective
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.dcp.source import ShardedContext
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from tests.engines.kernel_lab.labs import Lab

T = TypeVar("T")

BLOCK = 64


class Ring:
    """As many ranks as there are threads."""

    def __init__(self, ranks: int, interleave: int) -> None:
        self._exchange = Exchange(ranks, timeout_s=30.0)
        self._pool = ThreadPoolExecutor(ranks)
        self.shares = [Share(LoopbackCollective(self._exchange, rank), interleave) for rank in range(ranks)]

    def run(self, act: Callable[[int], T]) -> list[T]:
        """What ``act`` returns on each rank, all at the same time."""

        def guarded(rank: int) -> T:
            try:
                with torch.inference_mode():
                    return act(rank)
            except BaseException:
                self._exchange.abort()
                raise

        return list(self._pool.map(guarded, range(len(self.shares))))


class RankLabs:
    """A layer over several ranks, and the same layer over one."""

    def __init__(self, kind: str, dtype: torch.dtype, ranks: int, interleave: int) -> None:
        args: dict[str, Any] = {"heads": 16, "block_size": BLOCK, "max_model_len": 512}
        spread = {"decode_context_parallel_size": ranks, "cp_kv_cache_interleave_size": interleave}
        self.ring = Ring(ranks, interleave)
        self.labs = [Lab(kind, dtype, share, **args, **spread) for share in self.ring.shares]
        self.whole = Lab(kind, dtype, **args)

    def context(self, rank: int, rows: int) -> ShardedContext:
        """A workspace of one rank."""
        lab = self.labs[rank]
        return ShardedContext(
            WorkspaceManager(guard_bytes=4096),
            lab.kernels,
            self.ring.shares[rank],
            workspace_rows=rows,
            block_size=BLOCK,
            width=lab.mla[0].shape.latent,
            dtype=lab.dtype,
            align_to_block=lab.kind == "dense",
        )


@cache
def rank_labs(kind: str, dtype: torch.dtype, ranks: int, interleave: int) -> RankLabs:
    """One for all examples."""
    return RankLabs(kind, dtype, ranks, interleave)
