"""How the DeepSeek-V4 layers of a step are cut into chunks, under the knobs that are in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.engines.kernel_lab.batch import Batch
from orchestrator.planning import (
    LAUNCH_ROWS,
    ChunkPlan,
    LayerType,
    area_limit,
    fixed_chunks,
    plan_prefill_chunks,
)

FIXED: Final = "fixed"
"""The order that makes groups of ``prefill_chunk_size`` requests of the largest width."""


@dataclass(frozen=True, kw_only=True)
class ChunkKnobs:
    """What decides the chunks of a batch.

    Attributes:
        window: Tokens of the sliding window.
        max_num_batched_tokens: At engine start, as vLLM's planner takes it.
        prefill_chunk_size: Factor of the area limit, or the size of a fixed group.
        prefill_area_limit: Rows that no chunk of several requests may span, below that limit; None leaves it.
        order: One of ``orchestrator.engines.kernel_lab.args.CHUNK_ORDERS``.
        launch_rows: What one more chunk costs the order ``optimal``, in rows.
    """

    max_model_len: int
    window: int
    max_num_batched_tokens: int
    prefill_chunk_size: int
    prefill_area_limit: int | None = None
    order: str = "batch"
    launch_rows: int = LAUNCH_ROWS

    def limit(self, kind: LayerType) -> int:
        """Rows that a chunk of several requests may span in a layer of a kind."""
        own = area_limit(
            prefill_chunk_size=self.prefill_chunk_size,
            compress_ratio=kind.compress_ratio,
            max_model_len=self.max_model_len,
            window=self.window,
            max_num_batched_tokens=self.max_num_batched_tokens,
            has_compressed=kind.has_compressed,
        )
        return own if self.prefill_area_limit is None else min(own, self.prefill_area_limit)

    def plan(self, kind: LayerType, batch: Batch) -> ChunkPlan:
        """The chunks of a batch's prefills in a layer of a kind."""
        if self.order == FIXED:
            return fixed_chunks(
                len(batch.members),
                compress_ratio=kind.compress_ratio,
                max_model_len=self.max_model_len,
                window=self.window,
                max_num_batched_tokens=self.max_num_batched_tokens,
                has_compressed=kind.has_compressed,
                prefill_chunk_size=self.prefill_chunk_size,
            )
        return plan_prefill_chunks(
            batch.seq_lens,
            batch.query_lens,
            compress_ratio=kind.compress_ratio,
            window=self.window,
            area_limit=self.limit(kind),
            has_compressed=kind.has_compressed,
            order=self.order,
            launch_rows=self.launch_rows,
        )
