"""Draws the picture of chunks-and-workspace.md: python docs/concepts/chunks_and_workspace.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.planning import area_limit, plan_prefill_chunks, plans_svg, request_extents

PICTURE = Path(__file__).with_suffix(".svg")


def picture() -> str:
    """The batch of the worked example, in batch order and in the cheapest one."""
    seq, query = [100_000, 1000] * 6, [680] * 12
    layer: dict[str, Any] = {"compress_ratio": 4, "window": 128}
    limit = area_limit(prefill_chunk_size=4, max_model_len=131_072, max_num_batched_tokens=8192, **layer)
    orders = {"batch": "batch order, as vLLM plans", "optimal": "cheapest order"}
    plans = {
        caption: plan_prefill_chunks(seq, query, area_limit=limit, order=order, **layer)
        for order, caption in orders.items()
    }
    deep, wide = request_extents(seq, query, **layer)
    return plans_svg(plans, deep.tolist(), wide.tolist())


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
