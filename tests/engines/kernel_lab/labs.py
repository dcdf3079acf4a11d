"""Layers of a lab with random batches: what the proofs of the kernel lab have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.args import LabArgs, lab_args
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.cache_groups import CacheGroups
from orchestrator.engines.kernel_lab.caches import BlockTable
from orchestrator.engines.kernel_lab.content import compressed_hashes, token_hashes
from orchestrator.engines.kernel_lab.counters import Tally
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.dense import DenseLayer
from orchestrator.engines.kernel_lab.dsv4 import V4Layer
from orchestrator.engines.kernel_lab.kernels import Kernels, kernels_for
from orchestrator.engines.kernel_lab.layers import LayerFactory, v4_shape
from orchestrator.engines.kernel_lab.reference import mla_attention, v4_attention
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LAYER_TYPES

CPU = torch.device("cpu")

TINY: Mapping[str, Any] = {
    "heads": 3,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "head_dim": 80,
    "window": 9,
    "index_topk": 12,
    "max_model_len": 512,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
}
"""Odd sizes on purpose. ``head_dim`` has 64 elements before the rotary ones, so that it can be packed to fp8."""

TOLERANCE = {torch.bfloat16: 0.03, torch.float32: 2e-5}
"""Largest error of one query and head, relative to the length of what the reference gives (Euclidean norm)."""

LENGTHS = st.tuples(st.integers(0, 200), st.integers(1, 60))
"""Tokens of the context and tokens of the step of one request."""

BATCHES = st.lists(LENGTHS, min_size=1, max_size=4)


class Lab:
    """The layers of one kind, and requests whose context is in their caches.

    Args:
        dtype: Of caches and products.
        share: Of one rank of several.
        args: Over ``TINY``.
    """

    def __init__(self, kind: str, dtype: torch.dtype, share: Share | None = None, **args: Any) -> None:
        self.args: LabArgs = lab_args({**TINY, "layers": {kind: 1}, **args})
        self.kind, self.dtype = kind, dtype
        self.kernels: Kernels = kernels_for(CPU)
        self.tally = Tally(self.kernels)
        self.groups = CacheGroups(self.args, CPU)
        self.manager = WorkspaceManager(guard_bytes=4096)
        factory = LayerFactory(self.args, self.groups, self.kernels, dtype, CPU, share)
        self.mla: list[DenseLayer] = factory.mla_layers()
        self.v4: list[V4Layer] = [] if self.mla else factory.v4_layers(LAYER_TYPES[kind], self.manager)
        if self.v4:
            v4_shape(self.args).reserve(self.manager, LAYER_TYPES[kind], dtype, 4)
            self.manager.lock()

    @property
    def layer(self) -> DenseLayer | V4Layer:
        """The only layer."""
        return (self.mla or self.v4)[0]

    def batch(self, lengths: Sequence[tuple[int, int]], seed: int = 0) -> Batch:
        """Requests with these tokens of context, already cached, and of this step, written too."""
        rng = np.random.default_rng(seed)
        members, first = [], 0
        for context, count in lengths:
            hashes = token_hashes(rng.integers(0, 1000, context + count), 0)
            tables = self.groups.allocate(context + count)
            assert tables is not None
            self._write(tables, hashes, context)
            members.append(Member(tables, hashes, context + count, count, first))
            first += count
        for member in members:
            self.layer.write(member)
        return Batch(members, CPU)

    def _write(self, tables: dict[str, BlockTable], hashes: np.ndarray, context: int) -> None:
        """Cache a context as earlier steps would have, none longer than a step may be."""
        for start in range(0, context, self.args.max_num_batched_tokens):
            end = min(context, start + self.args.max_num_batched_tokens)
            self.layer.write(Member(tables, hashes, end, end - start, 0))

    def free(self, batch: Batch) -> None:
        """Take the blocks of a batch back."""
        for member in batch.members:
            self.groups.free(dict(member.tables))

    def v4_reference(self, batch: Batch, selected: torch.Tensor) -> torch.Tensor:
        """What a DeepSeek-V4 layer must give, ``[tokens, heads, width]``."""
        with torch.inference_mode():
            return self._v4_reference(batch, selected)

    def _v4_reference(self, batch: Batch, selected: torch.Tensor) -> torch.Tensor:
        (layer,) = self.v4
        queries, ratio = layer.queries(batch), layer.kind.compress_ratio
        outputs = []
        for member in batch.members:
            own = slice(member.first, member.first + member.query_len)
            compressed = layer.rows(compressed_hashes(member.hashes[: member.seq_len], ratio))
            rows = layer.rows(member.hashes[: member.seq_len])
            outputs.append(
                v4_attention(
                    queries[own],
                    member.context_len,
                    rows,
                    compressed,
                    selected[own],
                    window=self.args.window,
                    sink=layer.sink,
                )
            )
        return torch.cat(outputs)

    def mla_reference(self, batch: Batch, selected: torch.Tensor | None) -> torch.Tensor:
        """What a dense or sparse layer must give, ``[tokens, heads, value]``."""
        with torch.inference_mode():
            return self._mla_reference(batch, selected)

    def _mla_reference(self, batch: Batch, selected: torch.Tensor | None) -> torch.Tensor:
        (layer,) = self.mla
        queries, outputs = layer.queries(batch), []
        for member in batch.members:
            own = slice(member.first, member.first + member.query_len)
            outputs.append(
                mla_attention(
                    queries[own],
                    member.context_len,
                    layer.rows(member.hashes[: member.seq_len]),
                    layer.key_weight,
                    layer.value_weight,
                    kv_lora_rank=self.args.kv_lora_rank,
                    selected=None if selected is None else selected[own],
                )
            )
        return torch.cat(outputs)


def largest_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Over all queries and heads: length of the difference relative to that of what was expected."""
    lengths = expected.float().norm(dim=-1)
    # Where the reference itself is next to nothing, its length says nothing about the size of the terms.
    error = (got.float() - expected.float()).norm(dim=-1) / lengths.clamp_min(lengths.mean() * 0.1 + 1e-30)
    return float(error.max())
