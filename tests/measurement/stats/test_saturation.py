"""The call of over-saturation, on a simulated queue."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measurement.stats import detect_saturation
from orchestrator.measurement.stats.saturation import MIN_POINTS, POINT_REQUESTS, rises


def queue(
    random: np.random.Generator, load: float, seconds: float, capacity: float = 20.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Send, first-token and end times: Poisson arrivals, exponential prefill in turn, decode of 4 s."""
    count = int(load * capacity * seconds)
    send = np.cumsum(random.exponential(1 / (load * capacity), count))
    first = np.empty(count)
    free = 0.0
    for index in range(count):
        free = max(free, send[index]) + random.exponential(1 / capacity)
        first[index] = free
    return send, first, first + random.gamma(4.0, 1.0, count)


def called_at(times: tuple[np.ndarray, np.ndarray, np.ndarray], seconds: int) -> float:
    return next((float(now) for now in range(1, seconds) if detect_saturation(*times, float(now)).over), math.inf)


def test_calls_an_overload_within_15_s_and_leaves_a_stable_load_alone() -> None:
    random = np.random.default_rng(1)
    overloads = [called_at(queue(random, 1.5, 40), 40) for _ in range(40)]
    assert np.median(overloads) <= 15
    assert max(overloads) < math.inf
    stable = [called_at(queue(random, 0.9, 60), 60) for _ in range(60)]
    assert sum(math.isfinite(seconds) for seconds in stable) <= 1


def test_slopes_tell_the_excess() -> None:
    """At twice the capacity the queue grows by half of what arrives; each second adds half a second of TTFT."""
    times = queue(np.random.default_rng(2), 2.0, 30, capacity=100.0)
    got = detect_saturation(*times, 25.0)
    assert got.over
    assert got.ttft_slope == pytest.approx(0.5, abs=0.1)
    assert got.in_flight_slope == pytest.approx(0.5, abs=0.15)


def test_long_generations_piling_up_are_no_overload() -> None:
    send = np.arange(0, 30, 0.05)
    got = detect_saturation(send, send + 0.04, send + 60.0, 29.0)
    assert got.in_flight_slope == pytest.approx(1.0, abs=0.05)
    assert got.ttft_slope == pytest.approx(0.0, abs=0.01)
    assert not got.over


def test_what_happens_later_is_not_known_yet() -> None:
    send, first, end = queue(np.random.default_rng(3), 1.5, 30)
    now = 12.0
    sent = send <= now
    known = [np.where(times > now, np.nan, times)[sent] for times in (first, end)]
    assert detect_saturation(send, first, end, now) == detect_saturation(send[sent], known[0], known[1], now)


def test_the_order_of_the_requests_does_not_matter() -> None:
    send, first, end = queue(np.random.default_rng(4), 1.5, 20)
    mixed = np.random.default_rng(5).permutation(len(send))
    assert detect_saturation(send, first, end, 15.0) == detect_saturation(send[mixed], first[mixed], end[mixed], 15.0)


def test_a_failed_request_waits_no_longer() -> None:
    send = np.arange(0, 30, 0.05)
    first, end = send + 0.04, send + 1.0
    first[10], end[10] = np.nan, 2.0
    assert detect_saturation(send, first, end, 29.0).ttft_slope == pytest.approx(0.0, abs=0.01)


def test_says_nothing_before_it_has_enough_points() -> None:
    send = np.arange(0, 30, 0.5)  # 2 requests/s: a point every 5 s.
    nothing = np.full(len(send), np.nan)
    early = detect_saturation(send, nothing, nothing, 29.0)
    assert early.points < MIN_POINTS
    assert not early.over
    assert math.isnan(early.ttft_slope)
    assert len(send) < POINT_REQUESTS * MIN_POINTS


@given(st.lists(st.floats(-100, 100), min_size=4, max_size=60), st.floats(0.1, 10))
def test_a_falling_or_scaled_series(values: list[float], step_s: float) -> None:
    series = np.array(values)
    up, slope = rises(series, step_s)
    assert slope == pytest.approx(np.polyfit(step_s * np.arange(len(series)), series, 1)[0], rel=1e-6, abs=1e-6)
    assert not (up and rises(-series, step_s)[0])
    assert rises(series, step_s, scale=2.0)[1] == pytest.approx(slope / 2)


def test_random_walks_are_rarely_called_rising() -> None:
    walks = np.cumsum(np.random.default_rng(6).normal(0, 1, (20_000, 40)), axis=1)
    assert rises(walks, 0.5)[0].mean() < 0.002


@pytest.mark.parametrize(
    ("send", "first", "now", "says"),
    [
        ([0.0, 1.0], [0.5], 2.0, "differ in length: 2, 1, 2"),
        ([3.0], [4.0], 2.0, r"send_s holds no request sent by now_s = 2.0"),
        ([math.nan], [4.0], 2.0, "send_s must be finite"),
        ([0.0], [4.0], math.nan, "now_s must be finite"),
        ([], [], 1.0, "send_s holds no request"),
    ],
)
def test_refuses_what_is_no_timeline(send: list[float], first: list[float], now: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        detect_saturation(send, first, send, now)
