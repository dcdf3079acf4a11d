"""The batches of the lab's sweeps, timed on a device: workspace caps and, for one rank of several, interleaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks._lab_bench import BenchLayer, blocks_for, seconds
from benchmarks._mixes import Prefill
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import BlockPool, PagedCache
from orchestrator.engines.kernel_lab.content import token_hashes
from orchestrator.engines.kernel_lab.context import LATENT_GROUP
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.dcp.source import ShardedContext
from orchestrator.engines.kernel_lab.errors import require_shape
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.rows import PlainRows
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager


@dataclass(frozen=True, kw_only=True)
class CapPlan:
    """Which context workspaces are timed.

    Attributes:
        contexts: Cached tokens of each of ``requests`` requests.
        caps: Rows of the workspace.
        queries: New tokens of each request.
    """

    contexts: tuple[int, ...]
    caps: tuple[int, ...]
    requests: int
    queries: int
    turns: int


GPU_CAPS = CapPlan(
    contexts=(4_096, 16_384, 65_536), caps=(4_096, 16_384, 65_536, 262_144), requests=4, queries=2_048, turns=5
)
QUICK_CAPS = CapPlan(contexts=(256, 1_024), caps=(256, 1_024), requests=2, queries=64, turns=2)


def workspace_caps(
    kind: str, plan: CapPlan, device: torch.device, dtype: torch.dtype, is_over: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Time of a dense or sparse layer for each context and cap; the caps take turns in a random order."""
    coin = random.Random(1)
    for context in plan.contexts:
        if is_over():
            return
        prefills = [Prefill(context + plan.queries, plan.queries)] * plan.requests
        lab = BenchLayer(
            kind,
            device,
            dtype,
            max_model_len=context + plan.queries,
            max_num_batched_tokens=plan.requests * plan.queries,
            max_num_seqs=plan.requests,
            num_kv_blocks=blocks_for([prefills], 64),
        )
        lab.fill()
        workspaces = {cap: lab.context(cap) for cap in plan.caps}
        times: dict[int, list[float]] = {cap: [] for cap in plan.caps}
        counts: dict[int, tuple[int, float]] = {}
        with lab.batch(prefills) as batch:
            for turn in range(plan.turns + 1):
                for cap in coin.sample(plan.caps, len(plan.caps)):
                    lab.tally.reset()
                    taken = seconds(lambda: lab.mla_prefill(batch, workspaces[cap]), lab.kernels)  # noqa: B023
                    # The first turn compiles and grows buffers.
                    if turn:
                        times[cap].append(taken)
                    counts[cap] = (lab.tally.chunks, lab.tally.flops / lab.tally.seconds["attend"] / 1e9)
        for cap in plan.caps:
            workspaces[cap].manager.check_canaries()
            yield {
                "layer": kind,
                "context": context,
                "requests": plan.requests,
                "queries": plan.queries,
                "cap_rows": cap,
                "ms": 1e3 * median(times[cap]),
                "ms_least": 1e3 * min(times[cap]),
                "ms_most": 1e3 * max(times[cap]),
                "chunks": counts[cap][0],
                "attend_gflop_per_s": counts[cap][1],
                "workspace_mib": workspaces[cap].manager.current_bytes / 2**20,
            }


@dataclass(frozen=True, kw_only=True)
class DcpPlan:
    """Which shares of one rank are timed; see :class:`CapPlan`."""

    ranks: tuple[int, ...]
    interleaves: tuple[int, ...]
    caps: tuple[int, ...]
    context: int
    requests: int
    turns: int


GPU_DCP = DcpPlan(ranks=(2, 4, 8), interleaves=(1, 16, 64), caps=(16_384, 65_536), context=65_536, requests=4, turns=5)
QUICK_DCP = DcpPlan(ranks=(2, 8), interleaves=(1, 64), caps=(1_024,), context=1_000, requests=2, turns=2)

_WIDTH = 576
_BLOCK = 64


class _Echo:
    """Stands in for the transfer: every rank's share is a copy of this rank's."""

    def __init__(self, ranks: int) -> None:
        self.rank, self.ranks = 0, ranks

    def all_gather(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        """As in the protocol ``Collective``."""
        require_shape("out", tuple(out.shape), (self.ranks, *mine.shape))
        out.copy_(mine.unsqueeze(0).expand_as(out))

    def close(self) -> None:
        """There is nothing to leave."""


def one_rank(
    plan: DcpPlan, device: torch.device, dtype: torch.dtype, kernels: Kernels, is_over: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Time in which one rank of several fills its workspace with whole contexts: its own gather, copies in place of
    the transfer, and the rows brought into order."""
    tally = Tally(kernels)
    for ranks in plan.ranks:
        for interleave in plan.interleaves:
            share = Share(_Echo(ranks), interleave)
            blocks = -(-share.sharding.padded_rows(plan.context) // _BLOCK)
            pool = BlockPool(blocks * plan.requests, _BLOCK, seed=1, device=device)
            cache = PagedCache(blocks * plan.requests, _BLOCK, PlainRows(_WIDTH, dtype), device=device)
            cache.flat.zero_()
            hashes = token_hashes([0] * (plan.context + 1), 0)
            members = [
                Member({LATENT_GROUP: pool.allocate(blocks)}, hashes, plan.context + 1, 1, place)
                for place in range(plan.requests)
            ]
            for cap in plan.caps:
                if is_over():
                    return
                context = ShardedContext(
                    WorkspaceManager(device),
                    kernels,
                    share,
                    workspace_rows=cap,
                    block_size=_BLOCK,
                    width=_WIDTH,
                    dtype=dtype,
                )
                chunks = list(context.plan(Batch(members, device)))

                def fill() -> None:
                    for chunk in chunks:  # noqa: B023
                        own = members[chunk.request_start : chunk.request_end]  # noqa: B023
                        context.fill(chunk, own, cache, tally)  # noqa: B023

                times = [seconds(fill, kernels) for _ in range(plan.turns + 1)][1:]
                yield {
                    "ranks": ranks,
                    "interleave": interleave,
                    "cap_rows": cap,
                    "context": plan.context,
                    "requests": plan.requests,
                    "ms": 1e3 * median(times),
                    "chunks": len(chunks),
                    "workspace_mib": context.manager.current_bytes / 2**20,
                }
