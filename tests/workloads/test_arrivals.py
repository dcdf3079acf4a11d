from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import UserError
from orchestrator.workloads import (
    AllAtOnce,
    ArrivalKind,
    Arrivals,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    MultiTurn,
    PoissonArrivals,
    Prompt,
    RampArrivals,
    Request,
    TraceTime,
)

section: TypeAdapter[ArrivalKind] = TypeAdapter(Arrivals)
rates = st.floats(0.01, 10_000)
open_loops = st.one_of(
    st.builds(ConstantRate, rate=rates),
    st.builds(PoissonArrivals, rate=rates),
    st.builds(GammaArrivals, rate=rates, burstiness=st.floats(0.01, 10_000)),
)
ramps = st.builds(
    RampArrivals,
    from_rate=rates,
    to_rate=rates,
    shape=st.sampled_from(["linear", "exponential"]),
    spacing=st.sampled_from(["even", "poisson"]),
)


def requests(count: int, times: list[float] | None = None) -> list[Request]:
    prompt = Prompt(token_ids=[10], output_len=1)
    return [Request(prompt=prompt, at_s=times[index] if times else None) for index in range(count)]


def times_of(kind: ArrivalKind, count: int, seed: int = 0) -> Sequence[float]:
    return kind.schedule(requests(count), [seed]).times_of(count)


@given(st.one_of(open_loops, ramps), st.integers(1, 300), st.integers(0, 2**32))
def test_times_are_positive_and_in_order(kind: ArrivalKind, count: int, seed: int) -> None:
    times = times_of(kind, count, seed)
    assert len(times) == count
    assert times[0] >= 0
    assert all(np.isfinite(times))
    # A ramp's times go through a root or a logarithm, which may be off in the last bits.
    assert np.all(np.diff(times) >= -1e-9 * times[-1])
    assert kind.schedule(requests(count), [seed]).concurrency is None


@given(open_loops, st.integers(1, 300), st.integers(0, 2**32))
def test_the_last_arrival_is_exactly_n_over_rate(kind: ArrivalKind, count: int, seed: int) -> None:
    assert times_of(kind, count, seed)[-1] == count / kind.rate  # type: ignore[attr-defined]


@given(ramps, st.integers(1, 300), st.integers(0, 2**32))
def test_a_ramp_takes_the_time_in_which_its_rate_adds_up(kind: RampArrivals, count: int, seed: int) -> None:
    first, last = kind.from_rate, kind.to_rate
    if kind.shape == "linear":
        expected = 2 * count / (first + last)
    else:
        expected = count * np.log(last / first) / (last - first) if abs(last / first - 1) > 1e-6 else count / first
    assert times_of(kind, count, seed)[-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("shape", ["linear", "exponential"])
def test_a_ramp_has_its_rate_in_the_middle(shape: Any) -> None:
    times = np.array(times_of(RampArrivals(from_rate=10.0, to_rate=90.0, shape=shape, spacing="even"), 10_000))
    middle = times[-1] / 2
    near = np.sum(np.abs(times - middle) < 1.0) / 2.0
    assert near == pytest.approx(50.0 if shape == "linear" else 30.0, rel=0.02)


def test_gaps_have_the_spread_of_their_process() -> None:
    def variation(kind: ArrivalKind) -> float:
        gaps = np.diff(times_of(kind, 50_000, 5))
        return float(np.std(gaps) / np.mean(gaps))

    assert variation(ConstantRate(rate=100.0)) == pytest.approx(0, abs=1e-6)
    assert variation(PoissonArrivals(rate=100.0)) == pytest.approx(1, rel=0.02)
    assert variation(GammaArrivals(rate=100.0, burstiness=0.25)) == pytest.approx(2, rel=0.05)
    assert variation(GammaArrivals(rate=100.0, burstiness=16.0)) == pytest.approx(0.25, rel=0.02)


def test_one_seed_gives_one_schedule_and_another_seed_another() -> None:
    kind = PoissonArrivals(rate=3.0)
    assert kind.schedule(requests(9), [1, 2]) == kind.schedule(requests(9), [1, 2])
    assert kind.schedule(requests(9), [1, 2]) != kind.schedule(requests(9), [1, 3])


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert ConstantRate(rate=4.0).schedule(requests(3), [0]).times_s == [0.25, 0.5, 0.75]


def test_a_closed_loop_and_all_at_once_begin_at_once() -> None:
    closed = ClosedLoop(concurrency=2).schedule(requests(3), [0])
    assert (closed.times_s, closed.concurrency, closed.is_closed) == ([0, 0, 0], 2, True)
    at_once = AllAtOnce().schedule(requests(3), [0])
    assert (at_once.times_s, at_once.concurrency, at_once.is_closed) == ([0, 0, 0], None, False)


def test_trace_time_replays_at_a_speed() -> None:
    assert TraceTime(speed=2.0).schedule(requests(3, [0.0, 1.0, 5.0]), [0]).times_s == [0.0, 0.5, 2.5]


def test_trace_time_needs_times() -> None:
    with pytest.raises(UserError, match="trace_time needs requests with times of their own"):
        TraceTime().schedule(requests(2), [0])


def test_a_rate_counts_conversations() -> None:
    talk = MultiTurn.model_validate(
        {"kind": "multi_turn", "conversations": 3, "turns": 2, "first_len": 4, "next_len": 2, "output_len": 1}
    )
    schedule = ConstantRate(rate=1.0).schedule(talk.draw([0], vocab_size=100), [0])
    assert schedule.times_s == [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "constant", "rate": 0}, "greater than 0"),
        ({"kind": "poisson", "rate": -3}, "greater than 0"),
        ({"kind": "poisson", "rate": float("inf")}, "finite"),
        ({"kind": "gamma", "rate": 3, "burstiness": 0}, "greater than or equal to 0.01"),
        ({"kind": "closed_loop", "concurrency": 0}, "greater than or equal to 1"),
        ({"kind": "all_at_once", "rate": 3}, "Extra inputs"),
        ({"kind": "trace_time", "speed": 0}, "greater than 0"),
        ({"kind": "often"}, "does not match any of the expected tags"),
    ],
)
def test_a_wrong_section_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section.validate_python(value)
