"""Requests and streamed answers of an OpenAI-compatible ``/v1/completions``, with vLLM's additions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from orchestrator.engines.streaming import RequestFailed, StreamChunk
from orchestrator.workloads import Prompt

_DONE: Final = b"[DONE]"


def completion_body(model: str, prompt: Prompt, *, top2: bool) -> bytes:
    """The request for a prompt: greedy, of exactly the length that is wanted, streamed with token ids.

    ``top2`` also asks for the log probabilities of the two best tokens.
    """
    # Under their ids: two tokens may have the same text.
    gaps = {"logprobs": 2, "return_tokens_as_token_ids": True} if top2 else {}
    body = {
        "model": model,
        "prompt": list(prompt.token_ids),
        "max_tokens": prompt.output_len,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **gaps,
    }
    return json.dumps(body, separators=(",", ":")).encode()


async def completion_chunks(events: AsyncIterator[bytes]) -> AsyncIterator[StreamChunk | int]:
    """What the events of one answer bring: chunks of new tokens, and at the end how many tokens of the prompt came from
    the prefix cache.

    Raises:
        RequestFailed: The server says so, the answer is none, or it ended early.
    """
    is_done = False
    async for data in events:
        if data == _DONE:
            is_done = True
            continue
        try:
            chunk = json.loads(data)
            if error := chunk.get("error"):
                raise RequestFailed(str(error.get("message", error) if isinstance(error, dict) else error))
            tokens, usage = _tokens(chunk), chunk.get("usage")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestFailed(f"bad_answer: not a completion chunk: {data[:100]!r}") from error
        if tokens is not None:
            yield tokens
        if usage:
            yield int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    if not is_done:
        raise RequestFailed("bad_answer: the stream ended without [DONE]")


def _tokens(chunk: dict[str, Any]) -> StreamChunk | None:
    """The new tokens of a chunk. Some versions send the reason of the end in a chunk of its own, which brings none."""
    choices = chunk["choices"]
    ids = choices[0].get("token_ids") if choices else None
    if not ids:
        return None
    found = choices[0].get("logprobs")
    return StreamChunk(ids, None if found is None else [_gap(best) for best in found["top_logprobs"]], 0)


def _gap(best: dict[str, float]) -> float:
    """Difference of the two best log probabilities at one position."""
    first, second = sorted(best.values(), reverse=True)[:2]
    return first - second
