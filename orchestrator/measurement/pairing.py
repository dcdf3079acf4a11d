"""Measure a candidate against the baseline in pairs of blocks, until the ratio is known well enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from orchestrator.engines import BlockResult
from orchestrator.measurement.stats import PooledNoise, RatioInterval, paired_ratio

Role = Literal["baseline", "candidate"]
Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """When to stop.

    Attributes:
        min_pairs: Pairs that every point gets, at least 1.
        max_pairs: Pairs after which no more is measured.
        warmup_blocks: Blocks in front that are measured and dropped, 0 or more: the first block after a change of
            point is off by several percent, in either direction.
        half_width: Stop when the interval reaches at most this far from its middle, as a share (0.02 is 2 %).
    """

    min_pairs: int
    max_pairs: int
    warmup_blocks: int = 1
    half_width: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MeasuredBlock:
    """One block with its place in the measurement. ``pair`` counts from 0; a dropped block has the pair it precedes."""

    role: Role
    pair: int
    dropped: bool
    seed: int
    retune_s: float
    result: BlockResult
    metrics: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class PairedMeasurement:
    """All blocks in their order, and what the pairs say."""

    blocks: list[MeasuredBlock]
    interval: RatioInterval

    def values(self, role: Role, metric: str) -> list[float]:
        """The metric of one role's blocks that count, by pair."""
        return _values(self.blocks, role, metric)


RunBlock = Callable[[Role, int, bool], MeasuredBlock]
"""Measures one block: role, pair, dropped. Both roles of a pair serve the same prompts."""


def measure_pairs(
    run: RunBlock,
    plan: PairPlan,
    *,
    metric: str,
    direction: Direction,
    noise: PooledNoise | None = None,
    best_ratio: float | None = None,
) -> PairedMeasurement:
    """Measure pairs until the interval is narrow enough, the point is clearly worse than the best, or the plan ends.

    The two roles take turns in going first (AB, BA, AB, ...), so that a steady drift cancels over two pairs.

    Args:
        noise: Spread of other points' pairs, which makes an interval possible after few pairs. It is not changed.
        best_ratio: The best ratio so far; a point whose whole interval is worse is given up. None never gives up.

    Raises:
        ValueError: The metric is missing from a block.
    """
    blocks = [run("baseline", 0, True) for _ in range(plan.warmup_blocks)]
    for pair in range(plan.max_pairs):
        roles: tuple[Role, Role] = ("baseline", "candidate") if pair % 2 == 0 else ("candidate", "baseline")
        blocks.extend(run(role, pair, False) for role in roles)
        interval = paired_ratio(_values(blocks, "candidate", metric), _values(blocks, "baseline", metric), pooled=noise)
        if pair + 1 >= plan.min_pairs and (_is_narrow(interval, plan) or _is_worse(interval, direction, best_ratio)):
            break
    return PairedMeasurement(blocks=blocks, interval=interval)


def _values(blocks: list[MeasuredBlock], role: Role, metric: str) -> list[float]:
    found = sorted((block.pair, block.metrics[metric]) for block in blocks if block.role == role and not block.dropped)
    values = [value for _, value in found if value is not None]
    if len(values) != len(found):
        raise ValueError(f"{metric} is not defined for this workload")
    return values


def _is_narrow(interval: RatioInterval, plan: PairPlan) -> bool:
    return interval.low > 0 and math.sqrt(interval.high / interval.low) - 1 <= plan.half_width


def _is_worse(interval: RatioInterval, direction: Direction, best_ratio: float | None) -> bool:
    if best_ratio is None:
        return False
    return interval.low > best_ratio if direction == "minimize" else interval.high < best_ratio
