"""Answers that are not as they should be, and what is asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.engines.serve.completions import completion_body, completion_chunks
from orchestrator.engines.streaming import RequestFailed, StreamChunk
from orchestrator.workloads import Prompt

DONE = "[DONE]"


def chunks(*events: Any) -> list[StreamChunk | int]:
    async def stream() -> AsyncIterator[bytes]:
        for event in events:
            yield event.encode() if isinstance(event, str) else json.dumps(event).encode()

    async def collect() -> list[StreamChunk | int]:
        return [chunk async for chunk in completion_chunks(stream())]

    return asyncio.run(collect())


def token(number: int, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": "", "token_ids": [number], **more}]}


def test_tokens_then_what_the_cache_gave() -> None:
    last = {"choices": [{"text": "", "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}}
    assert chunks(token(4), token(5), last, usage, DONE) == [StreamChunk([4], None, 0), StreamChunk([5], None, 0), 16]


def test_without_details_nothing_came_from_the_cache() -> None:
    assert chunks(token(4), {"choices": [], "usage": {"completion_tokens": 1}}, DONE)[-1] == 0


def test_gaps_are_those_of_the_two_best() -> None:
    best = {"top_logprobs": [{"token_id:1": -3.0, "token_id:2": -0.5, "token_id:9": -4.0}]}
    (chunk,) = chunks(token(2, logprobs=best), DONE)
    assert chunk == StreamChunk([2], [2.5], 0)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([token(1)], r"without \[DONE\]"),
        ([{"error": {"message": "no room"}}], "no room"),
        ([{"error": "no room"}], "no room"),
        (["{"], "not a completion chunk"),
        ([[1]], "not a completion chunk"),
        ([{"choices": 1}], "not a completion chunk"),
        ([token(1, logprobs={"top_logprobs": [{"token_id:1": -1.0}]}), DONE], "not a completion chunk"),
    ],
)
def test_what_is_no_answer_fails_the_request(events: list[Any], error: str) -> None:
    with pytest.raises(RequestFailed, match=error):
        chunks(*events)


@pytest.mark.parametrize("top2", [False, True])
def test_a_request_is_greedy_of_a_fixed_length_and_asks_for_ids(top2: bool) -> None:
    body = json.loads(completion_body("m", Prompt(token_ids=[3, 4], output_len=9), top2=top2))
    assert (body["prompt"], body["max_tokens"], body["temperature"], body["ignore_eos"]) == ([3, 4], 9, 0, True)
    assert body["return_token_ids"]
    assert body["stream_options"] == {"include_usage": True}
    assert (body.get("logprobs"), body.get("return_tokens_as_token_ids")) == ((2, True) if top2 else (None, None))
