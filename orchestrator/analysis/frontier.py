"""Throughput of a GPU against the speed that one user sees."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from orchestrator.errors import ChunksmithError
from orchestrator.records import FULL_FIDELITY, RunFolder, read_table

_SECONDS, _MILLION = 3600.0, 1e6


@dataclass(frozen=True)
class Operating:
    """A point under a load.

    Attributes:
        point: One value per knob.
        load: How the requests arrived, as JSON.
        tokens_per_s_per_gpu: Output tokens per second and GPU, median of its blocks; per engine on a CPU.
        tokens_per_s_per_user: 1,000 / median TPOT in ms, median of its blocks: interactivity.
        median_ttft_ms: Median of its blocks.
        blocks: How many blocks.
        price_per_mtok: Price of a million output tokens; None where no price of a GPU hour was given.
        on_frontier: Whether no other is as fast in both.
    """

    point: dict[str, Any]
    load: str
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float
    median_ttft_ms: float
    blocks: int
    price_per_mtok: float | None
    on_frontier: bool


def frontier(run_path: Path | str, *, price_per_gpu_hour: float | None = None) -> list[Operating]:
    """Every measured point with its load, the most interactive first.

    Args:
        price_per_gpu_hour: In any currency, above 0.

    Raises:
        UserError: Not a run folder.
        ChunksmithError: No block has more than one output token, so there is no time per output token.
    """
    run = RunFolder.open(run_path)
    counted = FULL_FIDELITY & ~pc.field("dropped") & pc.field("phase").isin(["search", "confirm"])
    names = ["point", "load", "output_throughput", "output_throughput_per_gpu", "median_tpot_ms", "median_ttft_ms"]
    blocks = read_table(run.path, "blocks", where=counted, columns=names)
    blocks["output"] = blocks["output_throughput_per_gpu"].fillna(blocks["output_throughput"])
    blocks = blocks[(blocks["median_tpot_ms"] > 0) & (blocks["output"] > 0)]
    if blocks.empty:
        raise ChunksmithError(
            f"{run.path}: no block has a time per output token; measure with output_len above 1 to see the frontier."
        )
    groups = blocks.groupby(["point", "load"], sort=False, observed=True)
    medians = groups[["output", "median_tpot_ms", "median_ttft_ms"]].median()
    medians["blocks"] = groups.size()
    medians = medians.sort_values(["median_tpot_ms", "output"], ascending=[True, False]).reset_index()
    best_before = medians["output"].cummax().shift(fill_value=0.0)
    hourly = None if price_per_gpu_hour is None else price_per_gpu_hour * _MILLION / _SECONDS
    return [
        Operating(
            point=json.loads(row["point"]),
            load=row["load"],
            tokens_per_s_per_gpu=row["output"],
            tokens_per_s_per_user=1000.0 / row["median_tpot_ms"],
            median_ttft_ms=row["median_ttft_ms"],
            blocks=row["blocks"],
            price_per_mtok=None if hourly is None else hourly / row["output"],
            on_frontier=row["output"] > before,
        )
        for row, before in zip(medians.to_dict("records"), best_before, strict=True)
    ]
