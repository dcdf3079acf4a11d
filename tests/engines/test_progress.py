"""What a watchdog reads of a block while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from orchestrator.engines import PROGRESS, Progress
from orchestrator.engines.streaming import RequestFailed, StreamChunk, drive
from orchestrator.workloads import Prompt, Request, Schedule

LENGTH = 3


def since(before: Progress) -> tuple[int, int, int]:
    return PROGRESS.sent - before.sent, PROGRESS.ended - before.ended, PROGRESS.chunks - before.chunks


def requests(count: int) -> list[Request]:
    return [Request(prompt=Prompt(token_ids=[1], output_len=LENGTH)) for _ in range(count)]


def test_requests_and_chunks_are_counted_as_they_come() -> None:
    before, seen = replace(PROGRESS), []

    async def stream(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        for token in range(prompt.output_len):
            seen.append(since(before))
            yield StreamChunk([token], None, 0)

    asyncio.run(drive(stream, requests(2), Schedule(concurrency=1)))
    assert seen == [(1, 0, 0), (1, 0, 1), (1, 0, 2), (2, 1, 3), (2, 1, 4), (2, 1, 5)]
    assert since(before) == (2, 2, 6)


@pytest.mark.parametrize("error", [RequestFailed("no"), RuntimeError("no")])
def test_what_fails_has_ended_too(error: Exception) -> None:
    before, is_fatal = replace(PROGRESS), isinstance(error, RuntimeError)

    async def stream(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        if index == 0:
            raise error
        await asyncio.sleep(60 if is_fatal else 0)
        yield StreamChunk([0] * prompt.output_len, None, 0)

    with pytest.raises(RuntimeError) if is_fatal else nullcontext():
        asyncio.run(drive(stream, requests(3), Schedule()))
    sent, ended, _ = since(before)
    assert sent == ended == 3
