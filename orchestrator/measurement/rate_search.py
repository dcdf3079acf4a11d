"""The largest request rate at which an SLO holds: a search that asks for one probe after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from orchestrator.measurement.distributions import beta_cdf


@dataclass(frozen=True, kw_only=True)
class RatePlan:
    """What one search may do, rates in requests per second; ValueError for a value out of range.

    Attributes:
        low: First probe, above 0; none is below ``low / 16``.
        high: Largest rate of a probe, above ``low``.
        probes: Most probes of one search, at least 1.
        precision: Stop when the smallest rate that failed is at most this share above the largest that held; above 0.
        share: Share of the requests that has to keep the SLO, above 0 and at most 1.
        level: Confidence level of the interval, between 0 and 1.
    """

    low: float
    high: float
    probes: int
    precision: float
    share: float
    level: float = 0.95

    def __post_init__(self) -> None:
        is_valid = 0 < self.low < self.high < math.inf and self.probes >= 1 and 0 < self.precision < math.inf
        if not (is_valid and 0 < self.share <= 1 and 0 < self.level < 1):
            raise ValueError(f"out of range: {self}")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One block at a ``rate`` in requests per second; ValueError for a value out of range.

    Attributes:
        kept: Requests that kept the SLO, of the ``requests`` (1 or more) that the whole block was to offer.
        stopped: Ended early, because too many had missed the SLO for it to hold: it failed, whatever ``kept`` says.
    """

    rate: float
    kept: int
    requests: int
    stopped: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.rate < math.inf and 0 <= self.kept <= self.requests and self.requests >= 1):
            raise ValueError(f"out of range: {self}")


@dataclass(frozen=True, kw_only=True)
class RateResult:
    """The largest ``rate`` that held, in requests per second, or None; ``is_capped`` when it is the plan's ``high``.

    Attributes:
        low: The largest rate, up to ``rate``, that is proven to hold; 0 if none is.
        high: The smallest rate, above ``rate``, that is proven to fail; infinite if none is.
    """

    rate: float | None
    low: float
    high: float
    level: float
    probes: tuple[Probe, ...]
    is_capped: bool


class Tally(NamedTuple):
    """All probes of one rate: requests that kept the SLO, requests, number of probes."""

    rate: float
    kept: float
    requests: float
    probes: int


class RateSearch:
    """Asks for probes until the largest rate that holds (DistServe's goodput, OSDI 2024) is bracketed.

    **Path.** From ``low`` the rate doubles while it holds, or halves while it fails; then the bracket is halved in log
    down to one step of a grid: the largest ``2 ** -k`` octaves within ``precision``. A rate holds if ``share`` of its
    requests keep the SLO, after ``isotonic_attainment``. At last an unproven end is repeated, if that can prove it.

    **Interval.** A rate is proven where the Clopper-Pearson bound (Biometrika 26, 1934) of its probes excludes the
    other verdict. The true rate is outside with probability ``1 - level`` at most, whichever rates are visited and
    repeated: a rate can be proven wrongly in one direction only, each that can be visited gets an equal part, its
    ``k``-th look ``1 / (k (k + 1))`` of that. But requests resemble their neighbours (a late one delays the next), so
    it is optimistic by an unknown amount. It still tells a clear end from one that a few requests decided, and how
    little a short probe proves: at a share of 0.99 that takes hundreds of requests.

    **Replicates.** ``known`` probes (earlier searches of the same engine, point, SLO and plan; latest last) say where
    to begin and count for the interval; the rate is from own probes alone, one of which held there. It begins next to
    the middle of the known bracket, moves by 1, 2, 4 steps until its own is closed (mostly 2 probes), repeats no end.
    Each grid is shifted against the last by the golden section of a step, so that rounding averages out (dither) and
    does not look like agreement. Servers with one plan go through the same shifts: compare first searches with first
    ones. Where a step changes little, replicates are correlated (up to 0.3 in simulations), as each begins at the last.
    """

    def __init__(self, plan: RatePlan, known: Sequence[Probe] = ()) -> None:
        self._plan, self._known, self._own = plan, tuple(known), list[Probe]()
        # Steps in an octave, then the lowest and the highest from the first rate. Slack: the logarithm is rounded.
        self._octave = 1 << max(0, math.ceil(math.log2(math.log(2) / math.log1p(plan.precision))))
        self._floor = plan.low / 16
        self._first = min(max(self._begin(), self._floor), plan.high) if known else plan.low
        self._bottom = math.floor(self._octave * math.log2(self._floor / self._first) + 1e-9)
        self._top = math.ceil(self._octave * math.log2(plan.high / self._first) - 1e-9)

    def next_rate(self) -> float | None:
        """The rate to probe next, in requests per second; None when the search has ended."""
        left = self._plan.probes - len(self._own)
        if left == 0 or not self._own:
            return self._first if left else None
        held, failed = self._bracket(self._own)
        low = self._bottom if held is None else self._step(held)
        high = self._top if failed is None else self._step(failed)
        if low < high and (held is None or failed is None):
            stride = min(self._octave, 2 ** (len(self._own) - 1)) if self._known else self._octave
            return self._rate(max(low, high - stride) if held is None else min(high, low + stride))
        if held and failed and high - low > 1 and failed > (1 + self._plan.precision) * held:
            return self._rate((low + high) // 2)
        # The failing end first: it takes fewer probes.
        for one in reversed([] if self._known else tally(self._own, self._plan.share)):
            grown, holds = 1 + left / one.probes, one.rate == held
            longer = Tally(one.rate, one.kept * grown, one.requests * grown, one.probes + left)
            if one.rate in (held, failed) and not self._is_proven(one, holds) and self._is_proven(longer, holds):
                return one.rate
        return None

    def add(self, probe: Probe) -> None:
        """Tell the outcome of the probe that ``next_rate`` asked for; ValueError for another rate."""
        if probe.rate != (rate := self.next_rate()):
            raise ValueError(f"the next rate is {rate}, got {probe.rate}")
        self._own.append(probe)

    def result(self) -> RateResult:
        """What is known so far."""
        own, rate, low, high = tuple(self._own), self._bracket(self._own)[0], 0.0, math.inf
        for one in tally((*self._known, *own), self._plan.share):
            if self._is_proven(one, holds := rate is not None and one.rate <= rate):
                low, high = (one.rate, high) if holds else (low, min(high, one.rate))
        capped, level = rate == self._plan.high, self._plan.level
        return RateResult(rate=rate, low=low, high=high, level=level, probes=own, is_capped=capped)

    def _begin(self) -> float:
        """The point nearest to the middle of the known bracket on the grid of the last probe, shifted."""
        ends = [math.log2(end) * self._octave for end in self._bracket(self._known) if end is not None]
        grid = math.log2(self._known[-1].rate) * self._octave + (3 - math.sqrt(5)) / 2
        return float(2 ** ((grid + round(sum(ends) / len(ends) - grid)) / self._octave))

    def _rate(self, step: int) -> float:
        ends = {self._bottom: self._floor, self._top: self._plan.high}
        return ends.get(step, float(self._first * 2 ** (step / self._octave)))

    def _step(self, rate: float) -> int:
        ends = {self._floor: self._bottom, self._plan.high: self._top}
        return ends.get(rate, round(self._octave * math.log2(rate / self._first)))

    def _bracket(self, probes: Iterable[Probe]) -> tuple[float | None, float | None]:
        """The largest rate that holds and the smallest that fails."""
        tallies = tally(probes, self._plan.share)
        count = sum(attained >= self._plan.share for attained in isotonic_attainment(tallies))  # they come first
        return tallies[count - 1].rate if count else None, tallies[count].rate if count < len(tallies) else None

    def _is_proven(self, one: Tally, holds: bool) -> bool:
        """Whether the bound excludes the other verdict: the binomial tail at ``share`` is at most the error."""
        error = (1 - self._plan.level) / (self._plan.probes + len(self._known)) / (one.probes * (one.probes + 1))
        share, missed = self._plan.share, one.requests - one.kept
        hits, others, chance = (one.kept, missed, share) if holds else (missed, one.kept, 1 - share)
        return hits > 0 and beta_cdf(hits, others + 1, chance) <= error


def tally(probes: Iterable[Probe], share: float) -> list[Tally]:
    """Put the probes of equal rate together, in rising rate. A stopped one falls short of ``share`` in any case."""
    found: dict[float, Tally] = {}
    for probe in probes:
        _, kept, requests, count = found.get(probe.rate, Tally(probe.rate, 0, 0, 0))
        # Stopped, it had the misses that it takes to fail: the tail of inverse binomial sampling is the binomial one.
        most = math.ceil(share * probe.requests - 1e-9) - 1 if probe.stopped else probe.kept
        ended = min(probe.kept, most)
        found[probe.rate] = Tally(probe.rate, kept + ended, requests + ended + probe.requests - most, count + 1)
    return [found[rate] for rate in sorted(found)]


def isotonic_attainment(tallies: Sequence[Tally]) -> list[float]:
    """Attainment that never rises with the rate: pool adjacent violators (Ayer et al., Ann. Math. Stat. 26, 1955)."""
    # Imported here: it takes longer to load than all else that the analysis needs of this room.
    from scipy.optimize import isotonic_regression

    missed = [(one.requests - one.kept) / one.requests for one in tallies]
    starts = isotonic_regression(missed, weights=[one.requests for one in tallies]).blocks
    # From the counts, so that no rounding puts an attainment below a share that it equals.
    pools = [tallies[start:end] for start, end in pairwise(starts)]
    return [sum(one.kept for one in pool) / sum(one.requests for one in pool) for pool in pools for _ in pool]
