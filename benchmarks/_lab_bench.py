"""One layer of the kernel lab with full caches, to be timed or checked on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks._mixes import Prefill
from orchestrator.engines.kernel_lab.args import LabArgs, lab_args
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.cache_groups import CacheGroups
from orchestrator.engines.kernel_lab.chunking import ChunkKnobs
from orchestrator.engines.kernel_lab.content import token_hashes
from orchestrator.engines.kernel_lab.context import PagedContext
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dense import DenseLayer
from orchestrator.engines.kernel_lab.dsv4 import V4Layer
from orchestrator.engines.kernel_lab.kernels import Kernels, kernels_for
from orchestrator.engines.kernel_lab.layers import LayerFactory
from orchestrator.engines.kernel_lab.selection import selection_of
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LAYER_TYPES, ChunkPlan

GUARD_BYTES = 4096


class BenchLayer:
    """The only layer of a lab, and the caches that it reads.

    Args:
        kind: One of ``LAYER_KINDS``.
        dtype: Of caches and products.
        kernels: None for those of the device.
        args: Fields of ``LabArgs``.
    """

    def __init__(
        self, kind: str, device: torch.device, dtype: torch.dtype, *, kernels: Kernels | None = None, **args: Any
    ) -> None:
        self.args: LabArgs = lab_args({"layers": {kind: 1}, **args})
        self.kind, self.device, self.dtype = kind, device, dtype
        self.kernels = kernels_for(device) if kernels is None else kernels
        self.tally = Tally(self.kernels)
        self.manager = WorkspaceManager(device, guard_bytes=GUARD_BYTES)
        self._groups = CacheGroups(self.args, device)
        factory = LayerFactory(self.args, self._groups, self.kernels, dtype, device)
        self.mla: list[DenseLayer] = factory.mla_layers()
        self.v4: list[V4Layer] = [] if self.mla else factory.v4_layers(LAYER_TYPES[kind], self.manager)
        self._hashes = token_hashes(
            np.random.default_rng(self.args.seed).integers(0, 10**6, self.args.max_model_len), 0
        )

    @property
    def layer(self) -> DenseLayer | V4Layer:
        """The layer."""
        return (self.mla or self.v4)[0]

    def fill(self) -> None:
        """Write every block of the caches once, so that none is memory that was never touched.

        What lies in a block does not matter to time; batches that are only timed need no writes of their own.
        """
        args = self.args
        tokens = min(args.max_model_len, args.blocks // args.max_num_seqs * args.tokens_per_block)
        taken = []
        while (tables := self._groups.allocate(tokens)) is not None:
            taken.append(tables)
            self._write(Member(tables, self._hashes, tokens, tokens, 0))
        for tables in taken:
            self._groups.free(tables)

    @contextmanager
    def batch(self, prefills: Sequence[Prefill], *, write: bool = False) -> Iterator[Batch]:
        """The requests of a step, whose blocks are theirs until the end of the body.

        Args:
            write: Whether their rows are written; then each has its own content.
        """
        members, first = [], 0
        for number, prefill in enumerate(prefills):
            tables = self._groups.allocate(prefill.seq_len)
            assert tables is not None, "the caches are too small for the batch"
            hashes = self._hashes
            if write:
                ids = np.random.default_rng((self.args.seed, number)).integers(0, 1000, prefill.seq_len)
                hashes = token_hashes(ids, 0)
            member = Member(tables, hashes, prefill.seq_len, prefill.query_len, first)
            if write:
                self._write(member)
            members.append(member)
            first += prefill.query_len
        try:
            yield Batch(members, self.device)
        finally:
            for member in members:
                self._groups.free(dict(member.tables))

    def selection(self, batch: Batch) -> torch.Tensor:
        """Compressed rows that a DeepSeek-V4 layer's queries select."""
        layer = self.v4[0]
        return selection_of(batch, ratio=layer.kind.compress_ratio, topk=layer.shape.topk_of(layer.kind))

    def knobs(self, *, order: str = "batch", limit: int | None = None) -> ChunkKnobs:
        """Chunk knobs with the sizes of this layer."""
        args = self.args
        return ChunkKnobs(
            max_model_len=args.max_model_len,
            window=args.window,
            max_num_batched_tokens=args.max_num_batched_tokens,
            prefill_chunk_size=4,
            prefill_area_limit=limit,
            order=order,
            launch_rows=args.launch_rows,
        )

    def v4_prefill(self, batch: Batch, plan: ChunkPlan, selected: torch.Tensor) -> torch.Tensor:
        """Run the layer on a plan."""
        with torch.inference_mode():
            return self.v4[0].prefill(batch, plan, selected, self.tally)

    def context(self, workspace_rows: int) -> PagedContext:
        """A context workspace for a dense or sparse layer."""
        layer = self.mla[0]
        return PagedContext(
            WorkspaceManager(self.device, guard_bytes=GUARD_BYTES),
            self.kernels,
            workspace_rows=workspace_rows,
            block_size=self.args.tokens_per_block,
            width=layer.shape.latent,
            dtype=self.dtype,
            align_to_block=layer.shape.index_topk is None,
        )

    def mla_prefill(self, batch: Batch, context: PagedContext) -> torch.Tensor:
        """Run the layer through a context workspace."""
        layer = self.mla[0]
        topk = layer.shape.index_topk
        selected = None if topk is None else selection_of(batch, ratio=1, topk=topk)
        with torch.inference_mode():
            return layer.prefill(batch, context.plan(batch), context, selected, self.tally)

    def _write(self, member: Member) -> None:
        """Write all rows of a request in pieces no longer than a step, as engine steps would."""
        with torch.inference_mode():
            for start in range(0, member.seq_len, self.args.max_num_batched_tokens):
                end = min(member.seq_len, start + self.args.max_num_batched_tokens)
                self.layer.write(Member(member.tables, member.hashes, end, end - start, 0))


def blocks_for(batches: Sequence[Sequence[Prefill]], tokens_per_block: int) -> int:
    """Blocks that the largest of some batches needs."""
    return max(sum(-(-prefill.seq_len // tokens_per_block) for prefill in batch) for batch in batches)


def seconds(work: Callable[[], object], kernels: Kernels) -> float:
    """Time of one run, with all that it launched."""
    begin = kernels.now()
    work()
    return kernels.now() - begin


def fastest(work: Callable[[], object], kernels: Kernels, repeats: int) -> float:
    """The shortest of some runs, after one that does not count."""
    work()
    return min(seconds(work, kernels) for _ in range(repeats))
