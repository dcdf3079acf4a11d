"""Measure a candidate against the baseline in pairs of blocks, until the ratio is known well enough."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from orchestrator.engines import BlockResult
from orchestrator.measurement.dispatch import DispatchSlip
from orchestrator.measurement.stats import PooledNoise, RatioInterval, SequentialTest, Verdict, paired_ratio

Role = Literal["baseline", "candidate"]
Direction = Literal["minimize", "maximize"]
BlockOutcome = Literal["complete", "invalid", "stopped", "failed"]
Stop = Literal["decided", "narrow", "worse than the best", "all pairs"]
"""Why no further pair was measured."""

FEWEST_TO_DECIDE = 8
"""Pairs without which ``SequentialTest`` never gives a verdict at an error of 1 %."""


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """When to stop.

    Attributes:
        min_pairs: Pairs that every point gets, at least 1.
        max_pairs: Pairs after which no more is measured.
        warmup_blocks: Blocks in front that are measured and dropped, 0 or more: the first block after a change of
            point is off by several percent, in either direction.
        half_width: Stop when the interval reaches at most this far from its middle, as a share (0.02 is 2 %).
        delta: Stop when a sequential test has decided: better, worse, or equal within this share; None without a test.
        error: Bound on the probability of a false verdict.
        coin_seed: With it, a fair coin says for each pair which role goes first, as the test needs to be exact.
            Without, the roles take turns (AB, BA, AB, ...), so that a steady drift cancels over two pairs, and an
            engine that has to be exchanged for each role serves two blocks at a time.
        starts: How many times both roles' engines are started anew, from 1 to ``max_pairs``: what differs from one
            start to another is then part of the interval's width. With 1, nobody starts an engine for it.
        is_one_at_a_time: Whether only one of the two engines of a start can be there: it then serves all its blocks of
            the start, and after it the other.
    """

    min_pairs: int
    max_pairs: int
    warmup_blocks: int = 1
    half_width: float = 0.0
    delta: float | None = None
    error: float = 0.01
    coin_seed: int | None = None
    starts: int = 1
    is_one_at_a_time: bool = False

    def start_of(self, pair: int) -> int:
        """Number of the start that a pair is of, counted from 0: each has as many pairs as another, or one more."""
        return pair * self.starts // self.max_pairs

    def rounds(self) -> list[list[int]]:
        """The pairs that are measured before the interval is looked at again: one, or all those of one start."""
        pairs = range(self.max_pairs)
        if self.starts == 1:
            return [[pair] for pair in pairs]
        return [list(of_start) for _, of_start in itertools.groupby(pairs, self.start_of)]


@dataclass(frozen=True, kw_only=True)
class MeasuredBlock:
    """One block with its place in the measurement.

    Attributes:
        pair: Counts from 0; a dropped block has the pair that it precedes.
        dropped: Left out of every comparison: a warm-up, an invalid block, or a probe of a search for a rate.
        load: How its requests arrived, as JSON.
        slip: How late they were sent; None when none was.
        outcome: ``invalid`` when the load generator was late, ``stopped`` when a rule ended it early, ``failed`` when
            the engine or a request failed in it. Only a complete block counts.
        failure: One line on why it is not complete, its class in front.
    """

    role: Role
    pair: int
    dropped: bool
    seed: int
    retune_s: float
    result: BlockResult
    metrics: dict[str, float | None]
    load: str = "{}"
    slip: DispatchSlip | None = None
    outcome: BlockOutcome = "complete"
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class PairedMeasurement:
    """All blocks in their order, and what the pairs say."""

    blocks: list[MeasuredBlock]
    interval: RatioInterval
    verdict: Verdict = "undecided"
    stop: Stop = "all pairs"

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
    """Measure pairs until the point is decided, known well enough, clearly worse than the best, or the plan ends.

    Args:
        noise: Spread of other points' pairs, which makes an interval possible after few pairs. It is not changed.
        best_ratio: The best ratio so far; a point whose whole interval is worse is given up. None never gives up.

    Raises:
        ValueError: The metric is missing from a block.
    """
    blocks = [run("baseline", 0, True) for _ in range(plan.warmup_blocks)]
    test = None if plan.delta is None else SequentialTest(plan.delta, error=plan.error, noise=noise)
    coin = None if plan.coin_seed is None else random.Random(plan.coin_seed)
    stop: Stop = "all pairs"
    for number, pairs in enumerate(plan.rounds()):
        if plan.is_one_at_a_time:
            blocks.extend(run(role, pair, False) for role in _order(number, coin) for pair in pairs)
        else:
            blocks.extend(run(role, pair, False) for pair in pairs for role in _order(pair, coin))
        candidate, baseline = _values(blocks, "candidate", metric), _values(blocks, "baseline", metric)
        starts = [plan.start_of(pair) for pair in range(len(candidate))]
        interval = paired_ratio(candidate, baseline, pooled=noise, starts=starts)
        for pair in pairs:
            gain = math.log(candidate[pair]) - math.log(baseline[pair])
            if test is not None:
                test.add(-gain if direction == "minimize" else gain)
        reason = _reason_to_stop(interval, plan, test, direction, best_ratio)
        if len(candidate) >= plan.min_pairs and reason is not None:
            stop = reason
            break
    return PairedMeasurement(blocks=blocks, interval=interval, verdict=test.verdict if test else "undecided", stop=stop)


def _order(number: int, coin: random.Random | None) -> tuple[Role, Role]:
    """The role that goes first, and the other."""
    is_baseline_first = number % 2 == 0 if coin is None else coin.random() < 0.5
    return ("baseline", "candidate") if is_baseline_first else ("candidate", "baseline")


def _reason_to_stop(
    interval: RatioInterval,
    plan: PairPlan,
    test: SequentialTest | None,
    direction: Direction,
    best_ratio: float | None,
) -> Stop | None:
    if test is not None and test.verdict != "undecided":
        return "decided"
    if _is_narrow(interval, plan):
        return "narrow"
    return "worse than the best" if _is_worse(interval, direction, best_ratio) else None


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
