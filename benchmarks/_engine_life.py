"""Which share of its life an engine measured, by the records of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

from orchestrator.errors import ChunksmithError


@dataclass(frozen=True, kw_only=True)
class EngineLife:
    """Seconds of one engine, from the end of its warm-up block to the end of its last block.

    Attributes:
        measuring_s: In blocks of whatever phase.
        by_phase: The same by phase.
    """

    engine_id: str
    life_s: float
    measuring_s: float
    by_phase: dict[str, float]

    @property
    def share(self) -> float:
        return self.measuring_s / self.life_s


def engine_lives(run: Path) -> list[EngineLife]:
    """The engines of a run that served blocks.

    Raises:
        ChunksmithError: It has engines of several groups. Those take turns, and none can measure all the time.
    """
    engines = json.loads((run / "provenance.json").read_text())["engines"]
    if len({json.dumps(engine["group"], sort_keys=True) for engine in engines}) > 1:
        raise ChunksmithError(f"{run}: its engines take turns; give a run of a space without engine-scope knobs")
    # The baseline's greedy tokens are served once, and recorded with every point that is compared with them.
    blocks = pd.read_parquet(run / "blocks").drop_duplicates(["engine_id", "started_at"])
    lives = []
    for engine in engines:
        own = blocks[blocks["engine_id"] == engine["engine_id"]]
        if own.empty:
            continue
        began = own["started_at"].min()
        ended = (own["started_at"] + pd.to_timedelta(own["duration_s"], unit="s")).max()
        # A run from before this was recorded has lost the time from there to the first block.
        warm = pd.Timestamp(datetime.fromisoformat(engine["warm_at"])) if "warm_at" in engine else began
        phases = {str(phase): float(seconds) for phase, seconds in own.groupby("phase")["duration_s"].sum().items()}
        lives.append(
            EngineLife(
                engine_id=engine["engine_id"],
                life_s=(ended - warm).total_seconds(),
                measuring_s=float(own["duration_s"].sum()),
                by_phase=phases,
            )
        )
    return lives
