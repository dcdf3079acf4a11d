from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.engines import timer as module
from orchestrator.engines.timer import Timer, clock, make_timer

Make = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Timer]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")
makes: list[Any] = [pytest.param(module._TimerFd, marks=linux_only), module._LoopTimer]


async def fire_times(make: Make, *deadlines: float) -> list[float]:
    """Arm for each deadline (seconds from now) and return when, from now, the calls came."""
    begin, calls = clock(), []
    came = asyncio.Event()

    def call() -> None:
        calls.append(clock() - begin)
        came.set()

    timer = make(asyncio.get_running_loop(), call)
    try:
        for deadline in deadlines:
            timer.arm(begin + deadline)
        await asyncio.wait_for(came.wait(), 30)
    finally:
        timer.close()
    await asyncio.sleep(0.05)
    return calls


@pytest.mark.parametrize("make", makes)
@pytest.mark.parametrize("deadline", [0.0201, 0.0004, 0.0, -5.0, -1e9])
def test_it_calls_once_and_never_early(make: Make, deadline: float) -> None:
    (call,) = asyncio.run(fire_times(make, deadline))
    assert call >= deadline - 1e-6


@pytest.mark.parametrize("make", makes)
def test_the_last_deadline_counts(make: Make) -> None:
    (call,) = asyncio.run(fire_times(make, 1000.0, 0.02))
    assert call >= 0.02 - 1e-6
    (call,) = asyncio.run(fire_times(make, 0.001, 0.03))
    assert call >= 0.03 - 1e-6


@pytest.mark.parametrize("make", makes)
def test_a_closed_timer_is_silent(make: Make) -> None:
    async def run() -> list[int]:
        calls: list[int] = []
        timer = make(asyncio.get_running_loop(), lambda: calls.append(1))
        timer.arm(clock() + 0.01)
        timer.close()
        await asyncio.sleep(0.03)
        return calls

    assert asyncio.run(run()) == []


@linux_only
def test_linux_has_the_precise_one() -> None:
    async def kind() -> type[Timer]:
        timer = make_timer(asyncio.get_running_loop(), lambda: None)
        timer.close()
        return type(timer)

    assert asyncio.run(kind()) is module._TimerFd
