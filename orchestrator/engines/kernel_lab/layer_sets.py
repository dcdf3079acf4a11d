"""The layers of one kind: they share a plan and a choice of rows in every step."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch

from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.chunking import FIXED, ChunkKnobs
from orchestrator.engines.kernel_lab.context import ContextSource, PagedContext
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.dcp.source import ShardedContext
from orchestrator.engines.kernel_lab.dense import DenseLayer
from orchestrator.engines.kernel_lab.dsv4 import V4Layer
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.selection import selection_of
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LayerType, dense_workspace_rows, rule_for_vllm, sparse_workspace_rows

GUARD_BYTES = 4096
"""Canaries beside every workspace; they are looked at after each block."""


class Layer(Protocol):
    """What layers of all kinds can do."""

    def write(self, member: Member) -> None:
        """Put the rows of a member's new tokens into the caches."""
        ...

    def decode(self, batch: Batch) -> torch.Tensor:
        """Attention of requests with one new token each."""
        ...


L = TypeVar("L", bound=Layer)


class LayerSet(ABC, Generic[L]):
    """Layers of one kind.

    Args:
        output_size: Elements of a layer's output at one position.
    """

    def __init__(self, layers: Sequence[L], output_size: int, tally: Tally) -> None:
        self.layers, self.output_size = layers, output_size
        self._tally = tally

    @abstractmethod
    def planned(self, batch: Batch) -> Callable[[L], torch.Tensor]:
        """Plan the prefills of a step; what is returned runs one layer: ``[tokens, ...]``."""

    def run(self, prefills: Batch, decodes: Batch, check: Callable[[], None]) -> list[torch.Tensor]:
        """Each layer's output at the last position of every request, prefills first: ``[requests, ...]``.

        Args:
            check: Called before each layer; it raises to end the step.
        """
        last = [member.first + member.query_len - 1 for member in prefills.members]
        prefill = self.planned(prefills) if prefills.members else None
        outputs = []
        for layer in self.layers:
            check()
            for member in (*prefills.members, *decodes.members):
                layer.write(member)
            parts = [] if prefill is None else [prefill(layer)[last]]
            if decodes.members:
                parts.append(layer.decode(decodes))
            outputs.append(torch.cat(parts))
        return outputs


class V4Set(LayerSet[V4Layer]):
    """DeepSeek-V4 layers of one kind.

    Args:
        knobs: At engine start.
    """

    def __init__(self, kind: LayerType, layers: Sequence[V4Layer], knobs: ChunkKnobs, tally: Tally) -> None:
        shape = layers[0].shape
        super().__init__(layers, shape.heads * shape.width, tally)
        self._kind, self._shape = kind, shape
        self._start_knobs = self._knobs = knobs

    def set_knobs(self, knobs: ChunkKnobs) -> None:
        """Put other knobs into force."""
        self._knobs = knobs

    def planned(self, batch: Batch) -> Callable[[V4Layer], torch.Tensor]:
        plan = self._knobs.plan(self._kind, batch)
        if self._knobs.order != FIXED:
            is_lowered = self._knobs.limit(self._kind) < self._start_knobs.limit(self._kind)
            self._tally.area_plans += 1
            self._tally.area_limited += len(plan) > 1 and is_lowered
        selected = selection_of(batch, ratio=self._kind.compress_ratio, topk=self._shape.topk_of(self._kind))
        return lambda layer: layer.prefill(batch, plan, selected, self._tally)


class MlaSet(LayerSet[DenseLayer]):
    """Dense or sparse MLA layers with the workspace of their contexts.

    Args:
        cap: Of the workspace, in rows; None for vLLM's own.
        share: This rank's part under decode context parallelism.

    Raises:
        LabError: ``out-of-memory``.
    """

    def __init__(
        self,
        args: LabArgs,
        layers: Sequence[DenseLayer],
        kernels: Kernels,
        tally: Tally,
        *,
        cap: int | None,
        share: Share | None = None,
    ) -> None:
        self._shape = layers[0].shape
        super().__init__(layers, args.heads * self._shape.v_head_dim, tally)
        self._args, self._kernels, self._share = args, kernels, share
        self._dtype, self._device = layers[0].dtype, layers[0].device
        self.context = self._new_context(self._rows(cap, args.max_num_seqs))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace."""
        size: int = self.context.reserved_rows * self._shape.latent * self._dtype.itemsize
        return size

    def resize(self, cap: int | None, max_num_seqs: int) -> None:
        """Give the workspace the rows of another cap.

        Raises:
            LabError: ``out-of-memory``; the old size is in force again.
        """
        rows, old = self._rows(cap, max_num_seqs), self.context.workspace_rows
        if rows == old:
            return
        # The old buffer is let go first: beside the new one it might not fit.
        self.context.manager.release()
        try:
            self.context = self._new_context(rows)
        except LabError:
            self.context = self._new_context(old)
            raise

    def run(self, prefills: Batch, decodes: Batch, check: Callable[[], None]) -> list[torch.Tensor]:
        outputs = super().run(prefills, decodes, check)
        return outputs if self._share is None else [self._share.joined_heads(output) for output in outputs]

    def planned(self, batch: Batch) -> Callable[[DenseLayer], torch.Tensor]:
        plan = self.context.plan(batch)
        self._tally.context_chunks += len(plan)
        topk = self._shape.index_topk
        selected = None if topk is None else selection_of(batch, ratio=1, topk=topk)
        return lambda layer: layer.prefill(batch, plan, self.context, selected, self._tally)

    def _rows(self, cap: int | None, max_num_seqs: int) -> int:
        args, rule = self._args, rule_for_vllm(self._args.vllm)
        if self._shape.index_topk is None:
            return dense_workspace_rows(
                max_model_len=args.max_model_len,
                max_num_seqs=max_num_seqs,
                block_size=args.tokens_per_block,
                dcp=args.decode_context_parallel_size,
                interleave=args.cp_kv_cache_interleave_size,
                cap=cap,
                rule=rule,
            )
        return sparse_workspace_rows(
            max_model_len=args.max_model_len,
            max_num_seqs=max_num_seqs,
            block_size=args.tokens_per_block,
            index_topk=self._shape.index_topk,
            dcp=args.decode_context_parallel_size,
            interleave=args.cp_kv_cache_interleave_size,
            cap=cap,
            rule=rule,
        )

    def _new_context(self, rows: int) -> ContextSource:
        manager = WorkspaceManager(self._device, guard_bytes=GUARD_BYTES)
        size, width, rule = self._args.tokens_per_block, self._shape.latent, rule_for_vllm(self._args.vllm)
        # Sparse backends begin pieces anywhere, except on CUDA.
        is_aligned = self._shape.index_topk is None or self._device.type == "cuda"
        if self._share is None:
            return PagedContext(
                manager,
                self._kernels,
                workspace_rows=rows,
                block_size=size,
                width=width,
                dtype=self._dtype,
                rule=rule,
                align_to_block=is_aligned,
            )
        return ShardedContext(
            manager,
            self._kernels,
            self._share,
            workspace_rows=rows,
            block_size=size,
            width=width,
            dtype=self._dtype,
            rule=rule,
            align_to_block=is_aligned,
        )


def changed_knobs(start: ChunkKnobs, **values: int | str | None) -> ChunkKnobs:
    """Knobs with other values; None is the value at start."""
    return dataclasses.replace(start, **{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]
