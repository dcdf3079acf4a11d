"""The closed loop, driven with a stream of our own in place of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines import RequestTimeline
from orchestrator.engines.streaming import RequestFailed, Stream, StreamChunk, drive
from orchestrator.engines.testing import most_in_flight
from orchestrator.workloads import Load, Prompt


class ScriptedStream:
    """Yields each prompt's own tokens (its index times 100, plus the position) in chunks of ``per_chunk``.

    Attributes:
        begun: Requests in the order in which they were begun.
        most_active: The largest number of requests that were active at once.
        yielded: Chunks of all requests.
    """

    def __init__(self, *, per_chunk: int = 1, fail: dict[int, tuple[int, Exception]] | None = None) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.active = self.most_active = self.yielded = 0
        self._per_chunk, self._fail = per_chunk, fail or {}

    async def __call__(self, index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        self.begun.append(index)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        after, error = self._fail.get(index, (prompt.output_len + 1, RuntimeError()))
        try:
            for position in range(0, prompt.output_len, self._per_chunk):
                await asyncio.sleep(0)
                if position >= after:
                    raise error
                tokens = range(position, min(position + self._per_chunk, prompt.output_len))
                self.yielded += 1
                yield StreamChunk([100 * index + token for token in tokens], [0.5] * len(tokens), index)
        finally:
            self.active -= 1
            self.ended.append(index)


def prompts(*output_lens: int) -> list[Prompt]:
    return [Prompt(token_ids=[1] * (index + 1), output_len=length) for index, length in enumerate(output_lens)]


def run(stream: Stream, asked: Sequence[Prompt], concurrency: int | None = None) -> tuple[list[RequestTimeline], float]:
    return asyncio.run(drive(stream, asked, Load(concurrency=concurrency)))


@given(st.lists(st.integers(1, 9), max_size=12), st.none() | st.integers(1, 5), st.integers(1, 4))
def test_one_timeline_for_each_prompt_in_order(lengths: list[int], concurrency: int | None, per_chunk: int) -> None:
    stream = ScriptedStream(per_chunk=per_chunk)
    timelines, duration = run(stream, prompts(*lengths), concurrency)
    assert [one.index for one in timelines] == list(range(len(lengths)))
    for one, length in zip(timelines, lengths, strict=True):
        assert one.error is None
        assert (one.prompt_tokens, one.output_tokens, one.cached_tokens) == (one.index + 1, length, one.index)
        assert one.output_token_ids == [100 * one.index + position for position in range(length)]
        assert one.top2_gaps == [0.5] * length
        assert len(one.token_times_s) == -(-length // per_chunk)
        times = [0.0, one.arrival_s, one.send_s, *one.token_times_s, duration]
        assert times == sorted(times)
        assert (one.first_token_s, one.end_s) == (one.token_times_s[0], one.token_times_s[-1])
    bound = min(concurrency or len(lengths), len(lengths))
    assert stream.most_active == bound
    assert most_in_flight(timelines) <= bound
    assert stream.begun == sorted(stream.begun)


def test_the_next_request_is_sent_when_one_ends() -> None:
    stream = ScriptedStream()
    timelines, _ = run(stream, prompts(1, 8, 1, 1), 2)
    ends = [one.end_s for one in timelines]
    assert ends[0] is not None
    assert timelines[2].send_s >= ends[0]
    assert timelines[3].send_s >= (ends[2] or 0.0) > 0
    assert stream.ended == [0, 2, 3, 1]


def test_a_request_fails_alone_and_keeps_what_it_had() -> None:
    timelines, _ = run(ScriptedStream(fail={1: (2, RequestFailed("too long"))}), prompts(3, 4, 3), 1)
    assert [one.error for one in timelines] == [None, "too long", None]
    failed = timelines[1]
    assert (failed.output_tokens, failed.output_token_ids, failed.end_s) == (2, [100, 101], None)
    assert failed.first_token_s is not None


def test_a_request_that_fails_before_its_first_token() -> None:
    (one,), _ = run(ScriptedStream(fail={0: (0, RequestFailed("refused"))}), prompts(3))
    assert (one.first_token_s, one.end_s, one.output_tokens, one.error) == (None, None, 0, "refused")
    assert (list(one.token_times_s), one.top2_gaps) == ([], None)


def test_too_few_tokens_are_an_error() -> None:
    async def short(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        yield StreamChunk([5], None, 0)

    (one,), _ = run(short, prompts(3))
    assert (one.error, one.end_s, one.top2_gaps) == ("1 of 3 tokens", None, None)


def test_any_other_error_ends_the_block_and_cancels_the_rest() -> None:
    stream = ScriptedStream(fail={1: (1, ConnectionError("gone"))})
    with pytest.raises(ConnectionError, match="gone"):
        run(stream, prompts(50, 50, 50, 50), 3)
    assert stream.active == 0
    assert sorted(stream.ended) == sorted(stream.begun)
    assert stream.yielded < 10, "the others went on"


def test_no_prompts_make_an_empty_block() -> None:
    timelines, duration = run(ScriptedStream(), [])
    assert timelines == []
    assert duration >= 0
