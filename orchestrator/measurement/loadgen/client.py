"""Put a server under load for one block."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import resource
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.engines import StopRule
from orchestrator.measurement.loadgen.driver import Driver
from orchestrator.measurement.loadgen.result import LoadResult, gone
from orchestrator.measurement.loadgen.target import Target, no_answer_reason
from orchestrator.workloads import Request, Schedule


def run_load(
    target: Target, requests: Sequence[Request], schedule: Schedule, *, stop: StopRule | None = None
) -> LoadResult:
    """Send the requests at their times, follow every answer to its end, and return the raw timelines.

    It runs an event loop in the calling thread, and that process should do nothing else meanwhile: other threads
    delay the sends, which ``LoadResult.slip`` then shows. The garbage collector is paused.

    Args:
        requests: At least one.
        schedule: When they are due.
        stop: Asked every second; a text ends the block. Requests under way are cancelled, by closing their
            connections. It holds up the sends while it thinks.

    Raises:
        ChunksmithError: The server cannot be reached at all. One that dies later is told by ``LoadResult.lost``.
        ValueError: There is no request, or the schedule is for another number of them.
    """
    if not requests:
        raise ValueError("there is no request")
    driver = Driver(target, requests, schedule, uuid.uuid4().hex[:12], stop)
    with _many_files(), _no_collection(), asyncio.Runner() as runner:
        result = runner.run(driver.run())
    if result.lost is None and "disconnect" in result.failures:
        # No later request has found out whether the server died or only closed connections.
        why = no_answer_reason(target)
        return result if why is None else dataclasses.replace(result, lost=gone(why))
    return result


@contextmanager
def _no_collection() -> Iterator[None]:
    """A full collection takes tens of milliseconds, in which nothing is sent."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextmanager
def _many_files() -> Iterator[None]:
    """Allow as many open connections as the system lets us; the usual 1,024 ends an overload at its beginning."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
