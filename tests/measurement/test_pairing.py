from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines import BlockResult, Counters, InForce
from orchestrator.measurement import Direction, MeasuredBlock, PairedMeasurement, PairPlan, Role, measure_pairs
from orchestrator.measurement.pairing import FEWEST_TO_DECIDE
from orchestrator.measurement.stats import PooledNoise, paired_ratio

METRIC = "median_ttft_ms"
NOISE = PooledNoise()
NOISE.add([0.001, -0.001, 0.0])
"""So little that one pair is enough for a narrow interval."""

Value = Callable[[Role, int, bool], float | None]
counts = st.integers(1, 6)
directions: st.SearchStrategy[Direction] = st.sampled_from(["minimize", "maximize"])


class Recorder:
    """Measures by a formula, and keeps the order in which it was asked."""

    def __init__(self, value: Value) -> None:
        self.calls: list[tuple[Role, int, bool]] = []
        self._value = value

    def __call__(self, role: Role, pair: int, dropped: bool) -> MeasuredBlock:
        self.calls.append((role, pair, dropped))
        result = BlockResult(
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_s=1.0,
            requests=[],
            in_force=InForce(),
            counters=Counters(),
        )
        metrics = {METRIC: self._value(role, pair, dropped)}
        return MeasuredBlock(
            role=role, pair=pair, dropped=dropped, seed=0, retune_s=0.0, result=result, metrics=metrics
        )


def measure(
    value: Value,
    plan: PairPlan,
    *,
    direction: Direction = "minimize",
    noise: PooledNoise | None = None,
    best_ratio: float | None = None,
) -> tuple[PairedMeasurement, Recorder]:
    recorder = Recorder(value)
    measured = measure_pairs(recorder, plan, metric=METRIC, direction=direction, noise=noise, best_ratio=best_ratio)
    return measured, recorder


def steady(ratio: float) -> Value:
    return lambda role, pair, dropped: 100.0 * (ratio if role == "candidate" else 1.0)


def noisy(ratio: float, spread: float) -> Value:
    """Pairs that lie alternately above and below the ratio."""

    def value(role: Role, pair: int, dropped: bool) -> float:
        return 100.0 * (ratio * math.exp(spread * (-1) ** pair) if role == "candidate" else 1.0)

    return value


@given(
    min_pairs=counts,
    more=st.integers(0, 4),
    warmup=st.integers(0, 3),
    half_width=st.floats(0.0, 0.2),
    seed=st.integers(),
)
def test_the_order_is_warmup_then_ab_ba_ab(
    min_pairs: int, more: int, warmup: int, half_width: float, seed: int
) -> None:
    rng = random.Random(seed)
    plan = PairPlan(min_pairs=min_pairs, max_pairs=min_pairs + more, warmup_blocks=warmup, half_width=half_width)
    measured, recorder = measure(lambda role, pair, dropped: rng.uniform(50, 150), plan)
    assert recorder.calls[:warmup] == [("baseline", 0, True)] * warmup
    rest = recorder.calls[warmup:]
    assert len(rest) == 2 * measured.interval.pairs
    for pair in range(measured.interval.pairs):
        first, second = ("baseline", "candidate") if pair % 2 == 0 else ("candidate", "baseline")
        assert rest[2 * pair : 2 * pair + 2] == [(first, pair, False), (second, pair, False)]
    assert min_pairs <= measured.interval.pairs <= min_pairs + more
    assert [(block.role, block.pair, block.dropped) for block in measured.blocks] == recorder.calls
    assert measured.interval == paired_ratio(measured.values("candidate", METRIC), measured.values("baseline", METRIC))


def test_values_stand_by_pair_whichever_role_went_first() -> None:
    plan = PairPlan(min_pairs=4, max_pairs=4)
    measured, _ = measure(lambda role, pair, dropped: 10.0 * pair + (1.0 if role == "candidate" else 2.0), plan)
    assert measured.values("candidate", METRIC) == [1.0, 11.0, 21.0, 31.0]
    assert measured.values("baseline", METRIC) == [2.0, 12.0, 22.0, 32.0]


def test_dropped_blocks_count_for_nothing() -> None:
    plan = PairPlan(min_pairs=3, max_pairs=3, warmup_blocks=2)
    measured, _ = measure(lambda role, pair, dropped: 1e9 if dropped else steady(0.5)(role, pair, dropped), plan)
    assert measured.interval.ratio == pytest.approx(0.5)
    assert len(measured.values("baseline", METRIC)) == 3


def test_a_steady_drift_cancels_over_two_pairs() -> None:
    blocks: list[int] = []

    def drifting(role: Role, pair: int, dropped: bool) -> float:
        blocks.append(1)
        return 100.0 * 1.05 ** len(blocks) * (0.8 if role == "candidate" else 1.0)

    measured, _ = measure(drifting, PairPlan(min_pairs=4, max_pairs=4))
    assert measured.interval.ratio == pytest.approx(0.8)


def test_it_stops_when_the_interval_is_narrow() -> None:
    plan = PairPlan(min_pairs=2, max_pairs=9, half_width=0.02)
    assert measure(noisy(0.8, 0.0001), plan)[0].interval.pairs == 2
    assert measure(noisy(0.8, 0.1), plan)[0].interval.pairs == 9
    assert 2 < measure(noisy(0.8, 0.012), plan)[0].interval.pairs < 9


@given(spread=st.floats(0.001, 0.05), half_width=st.floats(0.001, 0.2))
def test_narrow_means_within_the_half_width_as_a_share(spread: float, half_width: float) -> None:
    plan = PairPlan(min_pairs=2, max_pairs=12, half_width=half_width)
    interval = measure(noisy(0.8, spread), plan)[0].interval
    if interval.pairs < 12:
        middle = math.sqrt(interval.low * interval.high)
        assert interval.high / middle - 1 <= half_width * (1 + 1e-9)


def test_without_an_estimate_of_the_spread_nothing_is_narrow() -> None:
    assert measure(steady(0.8), PairPlan(min_pairs=1, max_pairs=5, half_width=0.5))[0].interval.pairs == 2


def test_the_noise_of_other_points_makes_one_pair_enough() -> None:
    plan = PairPlan(min_pairs=1, max_pairs=5, half_width=0.02)
    assert measure(steady(0.8), plan, noise=NOISE)[0].interval.pairs == 1
    assert NOISE.dof == 2


@pytest.mark.parametrize(("direction", "worse", "better"), [("minimize", 1.2, 0.7), ("maximize", 0.7, 1.2)])
def test_a_point_that_is_clearly_worse_than_the_best_is_given_up(
    direction: Direction, worse: float, better: float
) -> None:
    plan = PairPlan(min_pairs=2, max_pairs=8)

    def pairs(ratio: float, best_ratio: float | None) -> int:
        return measure(noisy(ratio, 0.01), plan, direction=direction, best_ratio=best_ratio)[0].interval.pairs

    assert pairs(worse, 0.9) < 8
    assert pairs(better, 0.9) == 8
    assert pairs(0.9, 0.9) == 8
    assert pairs(worse, None) == 8


@given(ratio=st.floats(0.5, 2.0), best=st.floats(0.5, 2.0), spread=st.floats(0.001, 0.05), direction=directions)
def test_whatever_stops_early_has_its_whole_interval_on_the_worse_side(
    ratio: float, best: float, spread: float, direction: Direction
) -> None:
    plan = PairPlan(min_pairs=2, max_pairs=6)
    interval = measure(noisy(ratio, spread), plan, direction=direction, best_ratio=best)[0].interval
    if interval.pairs < 6:
        assert interval.low > best if direction == "minimize" else interval.high < best


def test_a_fixed_plan_is_not_cut_short() -> None:
    plan = PairPlan(min_pairs=5, max_pairs=5, half_width=0.5)
    assert measure(steady(2.0), plan, noise=NOISE, best_ratio=0.5)[0].interval.pairs == 5


def test_a_metric_that_a_block_lacks_is_an_error_and_never_a_number() -> None:
    with pytest.raises(ValueError, match="median_ttft_ms is not defined for this workload"):
        measure(lambda role, pair, dropped: None, PairPlan(min_pairs=1, max_pairs=1))


def test_a_coin_says_which_role_goes_first() -> None:
    plan = PairPlan(min_pairs=200, max_pairs=200, warmup_blocks=0, coin_seed=3)
    _, recorder = measure(noisy(0.8, 0.1), plan)
    firsts = [role for role, _, _ in recorder.calls[::2]]
    assert 70 < firsts.count("baseline") < 130
    assert [pair for _, pair, _ in recorder.calls] == [pair for pair in range(200) for _ in range(2)]
    assert measure(noisy(0.8, 0.1), plan)[1].calls == recorder.calls
    other = PairPlan(min_pairs=200, max_pairs=200, warmup_blocks=0, coin_seed=4)
    assert measure(noisy(0.8, 0.1), other)[1].calls != recorder.calls


@pytest.mark.parametrize(
    ("ratio", "direction", "verdict"),
    [
        (0.8, "minimize", "better"),
        (1.25, "minimize", "worse"),
        (1.25, "maximize", "better"),
        (0.8, "maximize", "worse"),
        (1.0, "minimize", "equal"),
    ],
)
def test_it_stops_at_a_verdict(ratio: float, direction: Direction, verdict: str) -> None:
    plan = PairPlan(min_pairs=2, max_pairs=60, delta=0.05, coin_seed=0)
    measured, _ = measure(noisy(ratio, 0.01), plan, direction=direction)
    assert (measured.verdict, measured.stop) == (verdict, "decided")
    assert FEWEST_TO_DECIDE <= measured.interval.pairs < 60


def test_too_few_pairs_give_no_verdict() -> None:
    plan = PairPlan(min_pairs=2, max_pairs=FEWEST_TO_DECIDE - 1, delta=0.02)
    measured, _ = measure(noisy(0.5, 0.0001), plan, noise=NOISE)
    assert (measured.verdict, measured.stop) == ("undecided", "all pairs")


@pytest.mark.parametrize(
    ("plan", "best_ratio", "stop"),
    [
        (PairPlan(min_pairs=2, max_pairs=5, half_width=0.5), None, "narrow"),
        (PairPlan(min_pairs=2, max_pairs=5), 0.5, "worse than the best"),
        (PairPlan(min_pairs=2, max_pairs=5), None, "all pairs"),
    ],
)
def test_why_it_stopped_is_told(plan: PairPlan, best_ratio: float | None, stop: str) -> None:
    measured, _ = measure(noisy(0.8, 0.01), plan, noise=NOISE, best_ratio=best_ratio)
    assert measured.stop == stop


@pytest.mark.parametrize(
    ("is_one_at_a_time", "order"),
    [
        (False, "b0 c0 c1 b1 b2 c2 c3 b3 b4 c4"),
        (True, "b0 b1 c0 c1 c2 c3 b2 b3 b4 c4"),
    ],
)
def test_pairs_are_spread_over_starts(is_one_at_a_time: bool, order: str) -> None:
    plan = PairPlan(min_pairs=5, max_pairs=5, warmup_blocks=0, starts=3, is_one_at_a_time=is_one_at_a_time)
    starts = [plan.start_of(pair) for pair in range(5)]
    assert (starts, plan.rounds()) == ([0, 0, 1, 1, 2], [[0, 1], [2, 3], [4]])
    measured, recorder = measure(steady(0.5), plan)
    assert " ".join(f"{role[0]}{pair}" for role, pair, _ in recorder.calls) == order
    assert (measured.interval.pairs, measured.interval.starts) == (5, 3)


@given(pairs=st.integers(1, 40), data=st.data())
def test_starts_have_as_many_pairs_each_or_one_more(pairs: int, data: st.DataObject) -> None:
    starts = data.draw(st.integers(2, max(2, pairs))) if pairs > 1 else 1
    rounds = PairPlan(min_pairs=pairs, max_pairs=pairs, starts=starts).rounds()
    assert [pair for one in rounds for pair in one] == list(range(pairs))
    if starts > 1:
        assert len(rounds) == starts
        assert {len(one) for one in rounds} <= {pairs // starts, -(-pairs // starts)}
