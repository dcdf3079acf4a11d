"""Send prompts to a streaming generator in a closed loop, and keep the raw timestamps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from orchestrator.engines.contract import RequestTimeline
from orchestrator.workloads import Load, Prompt


@dataclass(frozen=True)
class StreamChunk:
    """What one chunk of a stream brought: new tokens, and how much of the prompt came from the prefix cache."""

    token_ids: Sequence[int]
    top2_gaps: Sequence[float] | None
    cached_tokens: int


Stream = Callable[[int, Prompt], AsyncIterator[StreamChunk]]
"""Starts one request (index, prompt) and yields its chunks. It may raise RequestFailed for that request alone."""


class RequestFailed(Exception):
    """One request failed; the engine lives on."""


async def drive(stream: Stream, prompts: Sequence[Prompt], load: Load) -> tuple[list[RequestTimeline], float]:
    """Serve all prompts; return one timeline for each, in their order, and the seconds until the last one ended.

    An error other than RequestFailed ends the block: the requests in flight are cancelled and it is raised.
    """
    slots = asyncio.Semaphore(load.concurrency or len(prompts))
    begin = time.perf_counter()

    async def serve(index: int, prompt: Prompt) -> RequestTimeline:
        async with slots:
            return await _follow(stream, index, prompt, begin)

    tasks = [asyncio.create_task(serve(index, prompt)) for index, prompt in enumerate(prompts)]
    try:
        timelines = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return list(timelines), time.perf_counter() - begin


async def _follow(stream: Stream, index: int, prompt: Prompt, begin: float) -> RequestTimeline:
    send = time.perf_counter() - begin
    times: list[float] = []
    tokens: list[int] = []
    gaps: list[float] | None = None
    cached, error = 0, None
    try:
        async for chunk in stream(index, prompt):
            times.append(time.perf_counter() - begin)
            tokens.extend(chunk.token_ids)
            cached = chunk.cached_tokens
            if chunk.top2_gaps is not None:
                gaps = [*(gaps or []), *chunk.top2_gaps]
    except RequestFailed as failure:
        error = str(failure)
    else:
        if len(tokens) < prompt.output_len:
            error = f"{len(tokens)} of {prompt.output_len} tokens"
    return RequestTimeline(
        index=index,
        prompt_tokens=len(prompt.token_ids),
        output_tokens=len(tokens),
        cached_tokens=cached,
        # In a closed loop a request is due when it is sent: its predecessor's end is what releases it.
        arrival_s=send,
        send_s=send,
        first_token_s=times[0] if times else None,
        end_s=times[-1] if times and error is None else None,
        token_times_s=times,
        output_token_ids=tokens,
        top2_gaps=gaps,
        error=error,
    )
