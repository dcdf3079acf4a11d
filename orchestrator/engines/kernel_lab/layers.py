"""Build the layers of an engine, with their seeded tables and weights and their caches."""

from __future__ import annotations

import math
from typing import Final

import torch

from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.attention import LOG2_E
from orchestrator.engines.kernel_lab.cache_groups import CacheGroups
from orchestrator.engines.kernel_lab.content import LATENT_TABLE_ROWS, QUERY_TABLE_ROWS, salt_of, seeded_normal
from orchestrator.engines.kernel_lab.context import LATENT_GROUP
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.dense import DenseLayer
from orchestrator.engines.kernel_lab.dsv4 import WINDOW_GROUP, V4Layer, compressed_group
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows, RowFormat
from orchestrator.engines.kernel_lab.shapes import DenseShape, V4Shape
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LayerType

_SCORE_STD: Final = 2.5
"""Spread of the scores, natural logarithm: a query then attends to few dozens among thousands of rows."""

_SINK_MEAN: Final = 4.0
"""Mean score of the sinks, natural logarithm: some hundredths of the weight beside a full window."""


def v4_shape(args: LabArgs) -> V4Shape:
    """What the DeepSeek-V4 layers of an engine have in common."""
    return V4Shape(
        heads=args.heads,
        width=args.head_dim,
        window=args.window,
        topk=args.index_topk,
        max_model_len=args.max_model_len,
        max_num_batched_tokens=args.max_num_batched_tokens,
    )


def mla_shape(args: LabArgs) -> DenseShape:
    """Sizes of the dense or sparse layers of an engine, on each of its ranks."""
    return DenseShape(
        heads=args.heads // args.decode_context_parallel_size,
        kv_lora_rank=args.kv_lora_rank,
        qk_rope_head_dim=args.qk_rope_head_dim,
        qk_nope_head_dim=args.qk_nope_head_dim,
        v_head_dim=args.v_head_dim,
        index_topk=args.index_topk if args.mla_kind == "sparse" else None,
    )


class LayerFactory:
    """Makes the layers of one engine. Their tables are shared; salts tell their contents apart.

    Args:
        dtype: Of caches and products.
        share: This rank's part under decode context parallelism.
    """

    def __init__(
        self,
        args: LabArgs,
        groups: CacheGroups,
        kernels: Kernels,
        dtype: torch.dtype,
        device: torch.device,
        share: Share | None = None,
    ) -> None:
        self._share = share
        self._args, self._groups, self._kernels = args, groups, kernels
        self._dtype, self._device = dtype, device
        self._made = 0

    def mla_layers(self) -> list[DenseLayer]:
        """The dense or sparse layers."""
        args, shape = self._args, mla_shape(self._args)
        if not args.mla_layers:
            return []
        row_format = PlainRows(shape.latent, self._dtype)
        heads = slice(None) if self._share is None else self._share.heads(args.heads)
        query_table = self._query_table(args.heads, shape.key)[:, heads].contiguous()
        row_table = self._table(LATENT_TABLE_ROWS, shape.latent)
        return [
            DenseLayer(
                shape,
                self._kernels,
                self._groups.by_name[LATENT_GROUP].new_cache(row_format, self._device),
                salt=self._salt(),
                query_table=query_table,
                row_table=row_table,
                key_weight=self._weight(args.heads * shape.qk_nope_head_dim, shape.kv_lora_rank, shape.kv_lora_rank)
                .unflatten(0, (args.heads, -1))[heads]
                .flatten(0, 1),
                value_weight=self._weight(shape.kv_lora_rank, args.heads * shape.v_head_dim, shape.kv_lora_rank)
                .unflatten(1, (args.heads, -1))[:, heads]
                .flatten(1, 2),
                share=self._share,
            )
            for _ in range(args.mla_layers)
        ]

    def v4_layers(self, kind: LayerType, manager: WorkspaceManager) -> list[V4Layer]:
        """The layers of one of DeepSeek-V4's kinds."""
        args, shape = self._args, v4_shape(self._args)
        row_format = self._v4_rows()
        query_table = self._query_table(shape.heads, shape.width)
        row_table = row_format.encode(self._table(LATENT_TABLE_ROWS, shape.width))
        groups = self._groups.by_name
        layers = []
        for _ in range(args.layers[kind.name]):
            salt = self._salt()
            sink = (seeded_normal(salt, shape.heads) + _SINK_MEAN) * LOG2_E
            compressed = (
                groups[compressed_group(kind)].new_cache(row_format, self._device) if kind.has_compressed else None
            )
            layers.append(
                V4Layer(
                    kind,
                    shape,
                    self._kernels,
                    manager,
                    salt=salt,
                    query_table=query_table,
                    row_table=row_table,
                    sink=sink.to(self._device),
                    window_cache=groups[WINDOW_GROUP].new_cache(row_format, self._device),
                    compressed_cache=compressed,
                )
            )
        return layers

    def _v4_rows(self) -> RowFormat:
        args = self._args
        if args.kv_cache_dtype == "auto":
            return PlainRows(args.head_dim, self._dtype)
        return Fp8Rows(args.head_dim, args.qk_rope_head_dim)

    def _salt(self) -> int:
        self._made += 1
        return salt_of(self._args.seed, 4, self._made)

    def _query_table(self, heads: int, width: int) -> torch.Tensor:
        """Queries in base 2, whose scores with rows of unit variance have the wanted spread."""
        scale = _SCORE_STD * LOG2_E / math.sqrt(width)
        return (self._normal(5, QUERY_TABLE_ROWS, heads, width) * scale).to(self._device, self._dtype)

    def _table(self, rows: int, width: int) -> torch.Tensor:
        return self._normal(6, rows, width).to(self._device, self._dtype)

    def _weight(self, rows: int, columns: int, inner: int) -> torch.Tensor:
        """A matrix that keeps the variance of what it is multiplied with."""
        self._made += 1
        return (self._normal(7 + self._made, rows, columns) / math.sqrt(inner)).to(self._device, self._dtype)

    def _normal(self, purpose: int, *shape: int) -> torch.Tensor:
        return seeded_normal(salt_of(self._args.seed, purpose, *shape), *shape)
