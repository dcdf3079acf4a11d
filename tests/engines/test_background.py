"""A loop in a thread of its own: what one thread waits for, another may end."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from orchestrator.engines.background import BackgroundLoop


def test_it_gives_what_the_work_gives_or_raises() -> None:
    loop = BackgroundLoop("test-loop")

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 1 / by

    assert loop.wait_for(divide(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        loop.wait_for(divide(0))
    loop.close()
    loop.close()


@pytest.mark.parametrize("how", ["cancel_all", "close"])
def test_another_thread_can_end_it_and_the_work_hears_of_it(how: str) -> None:
    loop, begun, ended = BackgroundLoop("test-loop"), threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as waiting:
        work = waiting.submit(lambda: loop.wait_for(forever()))
        assert begun.wait(10)
        getattr(loop, how)()
        with pytest.raises(CancelledError):
            work.result(10)
    loop.close()
    assert ended.is_set()
