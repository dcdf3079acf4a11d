"""Which share of its life an engine measured, by the records of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

from orchestrator.errors import ChunksmithError


@dataclass(frozen=True, kw_only=True)
class EngineLife:
    """Seconds of one engine, from the end of its warm-up block to the end of its last block; or of the two engines of a
    start of a confirmation that are there at a time and take turns, from when both were warm.

    Attributes:
        engine_id: Of two, both with ``+`` between them.
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
        ChunksmithError: Engines take turns in its search: what one measures, another waits or starts.
    """
    engines = json.loads((run / "provenance.json").read_text())["engines"]
    # The baseline's greedy tokens are served once, and recorded with every point that is compared with them.
    blocks = pd.read_parquet(run / "blocks").drop_duplicates(["engine_id", "started_at"])
    blocks["ended_at"] = blocks["started_at"] + pd.to_timedelta(blocks["duration_s"], unit="s")
    began = blocks.groupby("engine_id")["started_at"].min()
    # A run from before this was recorded has lost the time from there to the first block.
    warm = {
        one["engine_id"]: pd.Timestamp(datetime.fromisoformat(one["warm_at"])) if "warm_at" in one else began[key]
        for one in engines
        if (key := one["engine_id"]) in began
    }
    return [_life(blocks, ids, warm) for ids in _together(blocks, warm, run)]


def _together(blocks: pd.DataFrame, warm: Mapping[str, pd.Timestamp], run: Path) -> list[list[str]]:
    """Engines that serve the same pairs and are there at a time; the others alone."""
    found = {one: [one] for one in warm}
    ended = blocks.groupby("engine_id")["ended_at"].max()
    counted = blocks[~blocks["dropped"] & blocks["phase"].isin(["search", "confirm"])]
    for _, of_pair in counted.groupby(["phase", "trial", "pair"]):
        ids = sorted(set(of_pair["engine_id"]))
        if len(ids) > 1 and set(of_pair["phase"]) == {"search"}:
            raise ChunksmithError(f"{run}: its engines take turns; give a run of a space without engine-scope knobs")
        if len(ids) == 2 and warm[ids[0]] < ended[ids[1]] and warm[ids[1]] < ended[ids[0]]:
            found[ids[0]] = found[ids[1]] = ids
    return list({tuple(ids): ids for ids in found.values()}.values())


def _life(blocks: pd.DataFrame, ids: Sequence[str], warm: Mapping[str, pd.Timestamp]) -> EngineLife:
    begin = max(warm[one] for one in ids)
    own = blocks[blocks["engine_id"].isin(ids) & (blocks["started_at"] >= begin)]
    phases = {str(phase): float(seconds) for phase, seconds in own.groupby("phase")["duration_s"].sum().items()}
    return EngineLife(
        engine_id="+".join(ids),
        life_s=(own["ended_at"].max() - begin).total_seconds(),
        measuring_s=float(own["duration_s"].sum()),
        by_phase=phases,
    )
