"""Ways to cut batches into chunks, raced on one layer: a search for the best, then pairs on other batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import geometric_mean, mean
from typing import Any

import torch

from benchmarks._lab_bench import BenchLayer, blocks_for, seconds
from benchmarks._mixes import LENGTH, STEP_TOKENS, Prefill, mixes
from orchestrator.engines.kernel_lab.args import V4_BLOCK_SIZE
from orchestrator.engines.kernel_lab.chunking import FIXED
from orchestrator.measurement.stats import RatioInterval, paired_ratio
from orchestrator.planning import ORDERS

GROUP = 4
"""Requests of a fixed group, and the factor of vLLM's area limit."""

LIMIT_DIVISORS = (1, 2, 4, 8)
"""Area limits of the search, as parts of vLLM's."""


@dataclass(frozen=True)
class Way:
    """A way to cut.

    Attributes:
        order: One of ``CHUNK_ORDERS``.
        divisor: What vLLM's area limit is divided by; without meaning for fixed groups.
    """

    order: str
    divisor: int = 1

    def __str__(self) -> str:
        if self.order == FIXED:
            return "groups of 4"
        return self.order if self.divisor == 1 else f"{self.order}, limit / {self.divisor}"


FIXED_GROUPS, AREA_PLAN = Way(FIXED), Way("batch")
CANDIDATES = tuple(Way(order, divisor) for order in ORDERS for divisor in LIMIT_DIVISORS)


@dataclass
class Lane:
    """What one way took, one entry a batch.

    Attributes:
        seconds: Sum over the turns.
        peak_bytes: Most workspace bytes of any batch: rows, combined indices and their lengths.
    """

    seconds: list[float] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    padded_rows: list[int] = field(default_factory=list)
    gather_s: float = 0.0
    attend_s: float = 0.0
    prefill_s: float = 0.0
    peak_bytes: int = 0


class Race:
    """Runs ways on one layer.

    Args:
        coin: Decides who goes first in every turn.
    """

    def __init__(self, lab: BenchLayer, coin: random.Random) -> None:
        self._lab, self._coin = lab, coin
        layer = lab.v4[0]
        layer.shape.reserve(lab.manager, layer.kind, lab.dtype, GROUP)

    def search(self, batches: Sequence[Sequence[Prefill]], turns: int) -> Way:
        """The candidate with the least geometric mean time. Of ways that cut all batches alike one is run."""
        distinct: dict[tuple[tuple[int, ...], ...], Way] = {}
        for way in CANDIDATES:
            distinct.setdefault(self._cuts(way, batches), way)
        lanes = self.run(tuple(distinct.values()), batches, turns)
        return min(lanes, key=lambda way: geometric_mean(lanes[way].seconds))

    def run(self, ways: Sequence[Way], batches: Sequence[Sequence[Prefill]], turns: int) -> dict[Way, Lane]:
        """Let all ways take each batch ``turns`` times, in an order that is drawn anew every turn."""
        lab = self._lab
        lanes = {way: Lane() for way in ways}
        for prefills in batches:
            with lab.batch(prefills) as batch:
                selected = lab.selection(batch)
                plans = {
                    way: lab.knobs(order=way.order, limit=self._limit(way)).plan(lab.v4[0].kind, batch) for way in ways
                }
                # Code for the shapes of this batch is compiled, and memory is touched for the first time.
                for plan in plans.values():
                    lab.v4_prefill(batch, plan, selected)
                for lane in lanes.values():
                    lane.seconds.append(0.0)
                for turn in range(turns):
                    for way in self._coin.sample(ways, len(ways)):
                        lane, plan = lanes[way], plans[way]
                        lab.tally.reset()
                        lab.manager.reset_peak()
                        lane.seconds[-1] += seconds(lambda: lab.v4_prefill(batch, plan, selected), lab.kernels)  # noqa: B023
                        for part in ("gather", "attend", "prefill"):
                            name = f"{part}_s"
                            setattr(lane, name, getattr(lane, name) + lab.tally.seconds[part])
                        if turn == 0:
                            lane.chunks.append(lab.tally.chunks)
                            lane.padded_rows.append(lab.tally.padded_rows)
                            lane.peak_bytes = max(lane.peak_bytes, lab.manager.peak_bytes)
                lab.manager.check_canaries()
        return lanes

    def _cuts(self, way: Way, batches: Sequence[Sequence[Prefill]]) -> tuple[tuple[int, ...], ...]:
        lab, cuts = self._lab, []
        for prefills in batches:
            with lab.batch(prefills) as batch:
                plan = lab.knobs(order=way.order, limit=self._limit(way)).plan(lab.v4[0].kind, batch)
            order = () if plan.permutation is None else tuple(plan.permutation.tolist())
            if order == tuple(range(len(order))):
                order = ()
            cuts.append((*(chunk.end for chunk in plan), -1, *order))
        return tuple(cuts)

    def _limit(self, way: Way) -> int | None:
        if way.divisor == 1:
            return None
        return max(1, self._lab.knobs().limit(self._lab.v4[0].kind) // way.divisor)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Measured lanes of one mix and kind of layer."""

    mix: str
    kind: str
    best: Way
    turns: int
    lanes: Mapping[Way, Lane]

    def ratio(self, way: Way, other: Way) -> RatioInterval:
        """Time of a way over that of another; a pair is a batch."""
        return paired_ratio(self.lanes[way].seconds, self.lanes[other].seconds)

    def row(self, way: Way) -> dict[str, Any]:
        """All figures of a way."""
        lane, over = self.lanes[way], self.ratio(way, FIXED_GROUPS)
        share = {part: value / lane.prefill_s for part, value in (("gather", lane.gather_s), ("attend", lane.attend_s))}
        return {
            "mix": self.mix,
            "layer": self.kind,
            "way": str(way),
            "batches": len(lane.seconds),
            "ms_per_batch": 1e3 * mean(lane.seconds) / self.turns,
            "ratio_to_fixed": over.ratio,
            "ratio_low": over.low,
            "ratio_high": over.high if isfinite(over.high) else None,
            "chunks_per_batch": mean(lane.chunks),
            "padded_rows_per_batch": mean(lane.padded_rows),
            "peak_workspace_mib": lane.peak_bytes / 2**20,
            "gather_share": share["gather"],
            "attend_share": share["attend"],
            "rest_share": 1 - sum(share.values()),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much a race does.

    Attributes:
        batches: Pairs of each mix.
        searched: Other batches, on which the best way is chosen.
        turns: Runs of each way on each of ``batches``; in the search it is one.
        shrink: Divides all lengths, see :func:`benchmarks._mixes.mixes`.
    """

    batches: int
    searched: int
    turns: int
    shrink: int


def race(
    kinds: Sequence[str], plan: Plan, device: torch.device, dtype: torch.dtype, *, seed: int, threads: int = 1
) -> Iterator[Outcome]:
    """Race fixed groups, vLLM's area plan and the best candidate on every mix and kind."""
    coin = random.Random(seed)
    for mix, batches in mixes(plan.searched + plan.batches, seed=seed, shrink=plan.shrink).items():
        for kind in kinds:
            lab = lab_for(kind, batches, device, dtype, shrink=plan.shrink, seed=seed, threads=threads)
            lab.fill()
            one = Race(lab, coin)
            best = one.search(batches[: plan.searched], 1)
            ways = tuple(dict.fromkeys((FIXED_GROUPS, AREA_PLAN, best)))
            lanes = one.run(ways, batches[plan.searched :], plan.turns)
            yield Outcome(mix=mix, kind=kind, best=best, turns=plan.turns, lanes=lanes)


def lab_for(
    kind: str,
    batches: Sequence[Sequence[Prefill]],
    device: torch.device,
    dtype: torch.dtype,
    *,
    shrink: int,
    seed: int,
    threads: int = 1,
) -> BenchLayer:
    """A layer whose caches hold the largest of some batches."""
    requests = max(map(len, batches))
    window, step = 128, STEP_TOKENS // shrink
    # Every window gets its whole ring, so that filling the caches reaches every block.
    ring = -(-(window - 1 + step) // V4_BLOCK_SIZE) + 1
    per_request = max(ring, -(-blocks_for(batches, V4_BLOCK_SIZE) // requests))
    return BenchLayer(
        kind,
        device,
        dtype,
        window=window,
        max_model_len=LENGTH // shrink,
        max_num_batched_tokens=step,
        max_num_seqs=requests,
        num_kv_blocks=per_request * requests,
        seed=seed,
        threads=threads,
    )
