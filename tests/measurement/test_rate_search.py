"""The search for the largest rate at which an SLO holds, against servers of known attainment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.measurement import Probe, RatePlan, RateResult, RateSearch
from orchestrator.measurement.rate_search import Tally, isotonic_attainment, tally

Server = Callable[[float], Probe]

PLAN: dict[str, Any] = {"low": 1.0, "high": 100.0, "probes": 30, "precision": 0.05, "share": 0.9}
STEP = 2 ** (1 / 16)
"""The largest root of 2, by a power of two, within the precision."""

precisions = st.floats(0.01, 1.5)


def plan(**changes: float) -> RatePlan:
    return RatePlan(**(PLAN | changes))


def cliff(threshold: float, requests: int = 100) -> Server:
    """Serves every request in time up to the threshold, and none above."""
    return lambda rate: Probe(rate=rate, kept=requests if rate <= threshold else 0, requests=requests)


def random(
    attainment: Callable[[float], float], requests: int, seed: int, *, stops_below: float | None = None
) -> Server:
    """Serves each request in time with the chance of its rate, independently.

    With ``stops_below`` a probe ends at the miss with which it falls below that share.
    """
    generator = np.random.default_rng(seed)

    def serve(rate: float) -> Probe:
        is_kept = generator.random(requests) < attainment(rate)
        misses = np.flatnonzero(~is_kept)
        if stops_below is not None and len(misses) > (allowed := int((1 - stops_below) * requests + 1e-9)):
            return Probe(rate=rate, kept=int(misses[allowed]) - allowed, requests=requests, stopped=True)
        return Probe(rate=rate, kept=int(is_kept.sum()), requests=requests)

    return serve


def slope(threshold: float, share: float, steepness: float) -> Callable[[float], float]:
    """An attainment that falls smoothly and passes the share at the threshold."""
    return lambda rate: math.exp(math.log(share) * (rate / threshold) ** steepness)


def run(search: RateSearch, server: Server) -> RateResult:
    while (rate := search.next_rate()) is not None:
        assert search.next_rate() == rate
        search.add(server(rate))
    return search.result()


def chain(rules: RatePlan, server: Server, count: int, *, keep_all: bool = False) -> list[RateResult]:
    """Searches that each know the one before, or all before."""
    known: list[Probe] = []
    results = []
    for _ in range(count):
        results.append(run(RateSearch(rules, known), server))
        known = [*(known if keep_all else ()), *results[-1].probes]
    return results


def check_bracket(result: RateResult, threshold: float, precision: float) -> None:
    assert result.rate is not None
    failed = min(probe.rate for probe in result.probes if probe.rate > threshold)
    assert result.rate <= threshold < failed
    assert failed <= (1 + precision) * result.rate * (1 + 1e-9)
    # Not finer than was asked for, except where the lowest or the highest rate cuts a step.
    is_cut = failed == PLAN["high"] or result.rate == PLAN["low"] / 16
    assert is_cut or failed >= math.sqrt(1 + precision) * result.rate * (1 - 1e-9)


@given(st.floats(-4, 6.5), precisions)
def test_a_cliff_is_bracketed_within_the_precision(octave: float, precision: float) -> None:
    result = run(RateSearch(plan(precision=precision), ()), cliff(2**octave))
    check_bracket(result, 2**octave, precision)
    assert not result.is_capped
    assert len(result.probes) < 30


@given(st.floats(-3.9, 6.5), st.floats(-1, 1), precisions)
def test_a_cliff_that_has_moved_is_bracketed_too(octave: float, moved: float, precision: float) -> None:
    rules, now = plan(precision=precision), min(max(2 ** (octave + moved), 1 / 16), 99)
    known = run(RateSearch(rules), cliff(2**octave)).probes
    check_bracket(run(RateSearch(rules, known), cliff(now)), now, precision)


@given(st.floats(1.01, 500), st.floats(0.1, 1000), st.integers(1, 12), precisions, st.booleans())
def test_stays_within_its_plan(high: float, threshold: float, probes: int, precision: float, is_later: bool) -> None:
    rules = plan(high=high, probes=probes, precision=precision)
    known = run(RateSearch(rules), cliff(threshold)).probes if is_later else ()
    search = RateSearch(rules, known)
    result = run(search, cliff(threshold))
    assert 1 <= len(result.probes) <= probes
    assert all(1 / 16 <= probe.rate <= high for probe in result.probes)
    with pytest.raises(ValueError, match="next rate is None"):
        search.add(cliff(threshold)(1.0))


def test_begins_at_low_doubles_and_ends_when_the_plan_does() -> None:
    result = run(RateSearch(plan(probes=4)), cliff(50))
    assert [probe.rate for probe in result.probes] == [1, 2, 4, 8]
    assert (result.rate, result.high, result.is_capped) == (8, math.inf, False)


@given(st.floats(1.01, 1000), st.floats(1, 10), st.booleans())
def test_is_capped_where_it_holds_at_the_highest_rate(high: float, more: float, is_later: bool) -> None:
    rules = plan(high=high)
    known = run(RateSearch(rules), cliff(high * more)).probes if is_later else ()
    result = run(RateSearch(rules, known), cliff(high * more))
    assert (result.rate, result.high, result.is_capped) == (high, math.inf, True)
    assert len(result.probes) <= (1 if is_later else 11)


@pytest.mark.parametrize("is_later", [False, True])
def test_none_holds(is_later: bool) -> None:
    known = run(RateSearch(plan()), cliff(1 / 16.1)).probes if is_later else ()
    result = run(RateSearch(plan(), known), cliff(1 / 16.1))
    assert (result.rate, result.low, result.is_capped) == (None, 0.0, False)
    assert min(probe.rate for probe in result.probes) == 1 / 16 == result.high
    assert len(result.probes) <= (2 if is_later else 5)


@given(st.floats(-3, 6), st.floats(0.01, 0.4), st.booleans())
def test_a_later_search_needs_two_probes_or_three(octave: float, precision: float, keep_all: bool) -> None:
    first, *later = chain(plan(precision=precision), cliff(2**octave), 8, keep_all=keep_all)
    assert max(len(result.probes) for result in later) <= 3 <= len(first.probes)
    assert sum(len(result.probes) for result in later) <= 2.3 * 7


@settings(max_examples=50)
@given(st.floats(-3, 6), st.floats(0.9, 1.1), st.booleans())
def test_the_rounding_to_the_grid_averages_out(octave: float, ratio: float, keep_all: bool) -> None:
    one, other = (chain(plan(), cliff(t), 34, keep_all=keep_all) for t in (2**octave, 2**octave * ratio))
    logs = [math.log((b.rate or 0) / (a.rate or 1)) for a, b in zip(one, other, strict=True)]
    assert np.mean(logs) == pytest.approx(math.log(ratio), abs=0.1 * math.log(STEP))


def test_the_rate_comes_from_own_probes_and_the_interval_from_all() -> None:
    lie = [Probe(rate=50, kept=1000, requests=1000), Probe(rate=52, kept=0, requests=1000)]
    result = run(RateSearch(plan(), lie), cliff(10))
    check_bracket(result, 10, 0.05)
    alone = RateSearch(plan(), [Probe(rate=9, kept=1000, requests=1000), Probe(rate=11, kept=0, requests=1000)])
    for rate, kept in ((alone.next_rate(), 9), (alone.next_rate(), 8)):
        assert rate is not None
        alone.add(Probe(rate=alone.next_rate() or 0, kept=kept, requests=10))
    assert (alone.result().low, alone.result().high) == (9, 11)


@settings(deadline=None)
@given(st.data(), st.integers(1, 15), st.booleans())
def test_holds_its_promises_whatever_the_server_does(data: st.DataObject, probes: int, is_later: bool) -> None:
    def erratic(rate: float) -> Probe:
        kept, stopped = data.draw(st.sampled_from([0, 80, 89, 90, 91, 100])), data.draw(st.booleans())
        return Probe(rate=rate, kept=kept, requests=100, stopped=stopped)

    rules = plan(probes=probes)
    known = run(RateSearch(rules), erratic).probes if is_later else ()
    result = run(RateSearch(rules, known), erratic)
    assert len(result.probes) <= probes
    assert result.low <= (result.rate or 0) < result.high
    if result.rate is not None:
        there = [probe for probe in result.probes if probe.rate == result.rate]
        assert any(probe.kept >= 90 and not probe.stopped for probe in there)


def study(
    rules: RatePlan, requests: int, steepness: float, *, stops: bool = False, searches: int = 1
) -> tuple[float, float, float]:
    """Coverage of 300 intervals, the share of them with two ends, and the median of high / low."""
    covered, widths = 0, []
    for seed in range(300):
        truth = float(np.random.default_rng(seed).uniform(8, 16))
        stops_below = rules.share if stops else None
        server = random(slope(truth, rules.share, steepness), requests, 1000 + seed, stops_below=stops_below)
        result = chain(rules, server, searches, keep_all=True)[-1]
        covered += result.low <= truth < result.high
        widths.append(result.high / result.low if result.low else math.inf)
    return covered / 300, float(np.mean(np.isfinite(widths))), float(np.median(widths))


@pytest.mark.parametrize("searches", [1, 3])
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(("share", "requests"), [(0.9, 100), (0.99, 1000)])
@pytest.mark.parametrize(("steepness", "least_bounded", "widest"), [(8, 0.7, 2.0), (40, 0.95, 1.15)])
def test_the_interval_covers_the_truth_and_says_something(
    share: float, requests: int, stops: bool, searches: int, steepness: float, least_bounded: float, widest: float
) -> None:
    rules = plan(share=share, probes=14)
    coverage, bounded, width = study(rules, requests, steepness, stops=stops, searches=searches)
    assert coverage >= 0.95
    assert bounded >= least_bounded
    assert width <= widest * (1 + 1e-9)


def edge_above(rate: float) -> float:
    """Holds up to 2, and above that falls short by next to nothing."""
    return 1.0 if rate <= 2 else 0.9 - 1e-6


def edge_below(rate: float) -> float:
    """Keeps just the share up to 60, and nothing above."""
    return 0.9 if rate <= 60 else 0.0


@pytest.mark.parametrize(("attainment", "truth"), [(edge_above, 2), (edge_below, 60)])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_keeps_its_level_where_many_rates_can_be_judged_wrongly(
    attainment: Callable[[float], float], truth: float, level: float
) -> None:
    """A bound for each rate and look on its own, at half of what the level leaves, covers 0.86 at 0.95 here."""
    covered = 0
    for seed in range(1000):
        result = run(RateSearch(plan(probes=14, level=level)), random(attainment, 150, seed))
        covered += result.low <= truth < result.high
    assert covered / 1000 >= level


@pytest.mark.parametrize("requests", [5, 60, 200])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_rate_is_proven_where_scipys_clopper_pearson_interval_excludes_the_share(requests: int, share: float) -> None:
    for kept in range(requests + 1):
        search = RateSearch(plan(probes=1, share=share))
        search.add(Probe(rate=1, kept=kept, requests=requests))
        # All of the 5 % for the one rate, half of that for its first look; scipy's level is for both sides.
        bounds = stats.binomtest(kept, requests).proportion_ci(1 - 2 * 0.05 / 2, method="exact")
        assert (search.result().low == 1) == (bounds.low >= share)
        assert (search.result().high == 1) == (bounds.high < share)


def weak_cliff(rate: float) -> Probe:
    """Keeps 0.96 up to 10 and 0.82 above: clear only after several probes."""
    return Probe(rate=rate, kept=96 if rate <= 10 else 82, requests=100)


def test_an_end_is_repeated_until_it_is_proven() -> None:
    result = run(RateSearch(plan(probes=40)), weak_cliff)
    failed = min(probe.rate for probe in result.probes if probe.kept == 82)
    assert (result.low, result.high) == (result.rate, failed)
    counts = Counter(probe.rate for probe in result.probes)
    assert {rate for rate, count in counts.items() if count > 1} == {result.rate, failed}
    for end, is_enough in ((end, is_enough) for end in (result.low, failed) for is_enough in (True, False)):
        count = counts[end] - (not is_enough)
        tail = stats.binom(100 * count, 0.9)
        chance = tail.sf(96 * count - 1) if end == result.low else tail.cdf(82 * count)
        assert (chance <= 0.05 / 40 / (count * (count + 1))) == is_enough


def test_a_later_search_repeats_nothing() -> None:
    rules = plan(probes=40)
    result = run(RateSearch(rules, run(RateSearch(rules), weak_cliff).probes), weak_cliff)
    assert len({probe.rate for probe in result.probes}) == len(result.probes) <= 3


@given(st.floats(0.01, 100), st.integers(1, 200), st.booleans())
def test_no_two_rates_are_nearly_equal(low: float, steps: int, is_later: bool) -> None:
    rules = plan(low=low, high=low * STEP**steps)
    known = run(RateSearch(rules), cliff(rules.high)).probes if is_later else ()
    for threshold in (rules.high, rules.high * 0.999, low / 17):
        rates = sorted(probe.rate for probe in run(RateSearch(rules, known), cliff(threshold)).probes)
        assert all(b / a > 1 + 1e-6 for a, b in pairwise(rates))


def test_an_end_that_cannot_be_proven_is_not_repeated() -> None:
    result = run(RateSearch(plan(probes=40, share=0.99)), cliff(10, requests=5))
    rates = [probe.rate for probe in result.probes]
    assert len(set(rates)) == len(rates) < 40


def test_a_repeat_may_change_the_verdict() -> None:
    search, served = RateSearch(plan(probes=40)), list[float]()
    while (rate := search.next_rate()) is not None:
        served.append(rate)
        kept = 100 if rate <= 4 else 94 if served == [1, 2, 4, 8] else 60
        search.add(Probe(rate=rate, kept=kept, requests=100))
    again = served.index(8, 4)
    assert served[again - 1] == 8 * STEP
    assert served[again + 1] == pytest.approx(4 * 2**0.5)
    assert search.result().rate == 4


@given(st.integers(1, 300), st.floats(0.01, 1), st.data())
def test_a_stopped_probe_fails_whatever_it_kept(requests: int, share: float, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, requests))
    (one,) = tally([Probe(rate=2, kept=kept, requests=requests, stopped=True)], share)
    assert one.kept / one.requests < share
    assert one.kept <= kept
    assert one.requests <= requests
    search = RateSearch(plan(share=share))
    search.add(Probe(rate=1, kept=kept, requests=requests, stopped=True))
    assert search.next_rate() == 0.5


def test_a_stopped_probe_counts_what_it_takes_to_fail() -> None:
    stopped = Probe(rate=2, kept=40, requests=100, stopped=True)
    assert tally([stopped, Probe(rate=2, kept=99, requests=100)], 0.99) == [Tally(2, 139, 142, 2)]


counts = st.integers(1, 20).flatmap(lambda requests: st.tuples(st.integers(0, requests), st.just(requests)))


def best_decreasing(shares: Sequence[float], weights: Sequence[int]) -> np.ndarray:
    """Of all ways to cut the row into pools, the one that never rises and has the smallest sum of squares."""
    best, least = np.empty(0), math.inf
    size = len(shares)
    for cuts in (c for k in range(size) for c in combinations(range(1, size), k)):
        pools = [slice(a, b) for a, b in pairwise((0, *cuts, size))]
        means = [np.average(shares[pool], weights=weights[pool]) for pool in pools]
        fit = np.concatenate([np.full(pool.stop - pool.start, mean) for pool, mean in zip(pools, means, strict=True)])
        squares = float(np.sum(np.array(weights) * (fit - np.array(shares)) ** 2))
        if np.all(np.diff(fit) <= 1e-12) and squares < least - 1e-12:
            best, least = fit, squares
    return best


@given(st.lists(counts, min_size=1, max_size=7))
def test_isotonic_attainment_is_the_best_of_all_pools(rows: list[tuple[int, int]]) -> None:
    got = isotonic_attainment([Tally(rate, kept, requests, 1) for rate, (kept, requests) in enumerate(rows)])
    want = best_decreasing([kept / requests for kept, requests in rows], [requests for _, requests in rows])
    assert got == pytest.approx(want, abs=1e-9)


@given(st.integers(1, 99), st.integers(1, 50), st.integers(0, 40))
def test_pools_that_keep_exactly_the_share_hold(percent: int, scale: int, shift: int) -> None:
    """A lower rate is short by as much as a higher one is above: together they keep the share, without rounding."""
    kept, shift = percent * scale, min(shift, percent * scale, (100 - percent) * scale)
    assume(shift > 0)
    rows = [Tally(1, kept - shift, 100 * scale, 1), Tally(2, kept + shift, 100 * scale, 1)]
    assert isotonic_attainment(rows) == [percent / 100] * 2


def test_known_probes_that_contradict_each_other_are_pooled() -> None:
    known = [Probe(rate=4, kept=80, requests=100), Probe(rate=8, kept=99, requests=100)]
    assert (RateSearch(plan(), known).next_rate() or 0) == pytest.approx(4, rel=0.03)
    known[0] = Probe(rate=4, kept=82, requests=100)
    assert (RateSearch(plan(), known).next_rate() or 0) == pytest.approx(8, rel=0.03)


def test_only_the_rate_that_was_asked_for_is_taken() -> None:
    search = RateSearch(plan())
    with pytest.raises(ValueError, match=r"the next rate is 1\.0, got 1\.5"):
        search.add(Probe(rate=1.5, kept=1, requests=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 0.0},
        {"low": math.nan},
        {"high": 1.0},
        {"high": math.inf},
        {"probes": 0},
        {"precision": 0.0},
        {"precision": math.inf},
        {"share": 0.0},
        {"share": 1.01},
        {"level": 0.0},
        {"level": 1.0},
    ],
)
def test_refuses_a_plan_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="out of range: RatePlan"):
        plan(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"rate": math.nan}, {"kept": -1}, {"kept": 3}, {"kept": 0, "requests": 0}]
)
def test_refuses_a_probe_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of range: Probe"):
        Probe(**({"rate": 1.0, "kept": 1, "requests": 2} | wrong))
