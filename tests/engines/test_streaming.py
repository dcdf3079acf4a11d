"""The closed loop, driven with a stream of our own in place of an engine."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import pickle
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines import EngineError, RequestTimeline, StopRule
from orchestrator.engines.streaming import Driven, RequestFailed, Stream, StreamChunk, drive
from orchestrator.engines.testing import most_in_flight
from orchestrator.workloads import Prompt, Request, Schedule


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


def requests(*output_lens: int) -> list[Request]:
    prompts = (Prompt(token_ids=[1] * (index + 1), output_len=length) for index, length in enumerate(output_lens))
    return [Request(prompt=prompt) for prompt in prompts]


def run(
    stream: Stream, asked: Sequence[Request], concurrency: int | None = None
) -> tuple[list[RequestTimeline], float]:
    driven = asyncio.run(drive(stream, asked, Schedule(concurrency=concurrency)))
    return driven.timelines, driven.duration_s


@given(st.lists(st.integers(1, 9), max_size=12), st.none() | st.integers(1, 5), st.integers(1, 4))
def test_one_timeline_for_each_prompt_in_order(lengths: list[int], concurrency: int | None, per_chunk: int) -> None:
    stream = ScriptedStream(per_chunk=per_chunk)
    timelines, duration = run(stream, requests(*lengths), concurrency)
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
    timelines, _ = run(stream, requests(1, 8, 1, 1), 2)
    ends = [one.end_s for one in timelines]
    assert ends[0] is not None
    assert timelines[2].send_s >= ends[0]
    assert timelines[3].send_s >= (ends[2] or 0.0) > 0
    assert stream.ended == [0, 2, 3, 1]


def test_a_request_fails_alone_and_keeps_what_it_had() -> None:
    timelines, _ = run(ScriptedStream(fail={1: (2, RequestFailed("too long"))}), requests(3, 4, 3), 1)
    assert [one.error for one in timelines] == [None, "too long", None]
    failed = timelines[1]
    assert (failed.output_tokens, failed.output_token_ids, failed.end_s) == (2, [100, 101], None)
    assert failed.first_token_s is not None


def test_a_request_that_fails_before_its_first_token() -> None:
    (one,), _ = run(ScriptedStream(fail={0: (0, RequestFailed("refused"))}), requests(3))
    assert (one.first_token_s, one.end_s, one.output_tokens, one.error) == (None, None, 0, "refused")
    assert (list(one.token_times_s), one.top2_gaps) == ([], None)


def test_too_few_tokens_are_an_error() -> None:
    async def short(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        yield StreamChunk([5], None, 0)

    (one,), _ = run(short, requests(3))
    assert (one.error, one.end_s, one.top2_gaps) == ("short: 1 of 3 tokens", None, None)


def test_any_other_error_ends_the_block_and_cancels_the_rest() -> None:
    stream = ScriptedStream(fail={1: (1, ConnectionError("gone"))})
    with pytest.raises(ConnectionError, match="gone"):
        run(stream, requests(50, 50, 50, 50), 3)
    assert stream.active == 0
    assert sorted(stream.ended) == sorted(stream.begun)
    assert stream.yielded < 10, "the others went on"


def test_no_prompts_make_an_empty_block() -> None:
    timelines, duration = run(ScriptedStream(), [])
    assert timelines == []
    assert duration >= 0


def drive_all(
    asked: Sequence[Request], schedule: Schedule, stream: Stream | None = None, stop: StopRule | None = None
) -> Driven:
    return asyncio.run(drive(stream or ScriptedStream(), asked, schedule, stop=stop))


def test_an_open_loop_sends_at_the_times_of_the_schedule() -> None:
    times = [0.05, 0.0, 0.02, 0.02]
    timelines = drive_all(requests(1, 1, 1, 1), Schedule(times_s=times)).timelines
    assert [one.arrival_s for one in timelines] == times
    assert all(one.send_s >= one.arrival_s for one in timelines)
    order = sorted(timelines, key=lambda one: one.send_s)
    assert [one.index for one in order] == [1, 2, 3, 0]


def test_an_open_loop_does_not_wait_for_an_answer() -> None:
    async def stuck_until_all_came(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        begun.append(index)
        while len(begun) < 3:
            await asyncio.sleep(0)
        yield StreamChunk([1], None, 0)

    begun: list[int] = []
    timelines = drive_all(requests(1, 1, 1), Schedule(times_s=[0.0, 0.01, 0.02]), stuck_until_all_came).timelines
    assert [one.error for one in timelines] == [None] * 3


@pytest.mark.parametrize("concurrency", [None, 1, 2])
def test_a_request_that_follows_another_waits_for_its_end_and_the_time_to_think(concurrency: int | None) -> None:
    first, second, third = requests(3, 2, 1)
    asked = [first, dataclasses.replace(second, follows=0, think_s=0.03), dataclasses.replace(third, follows=1)]
    timelines = drive_all(asked, Schedule(concurrency=concurrency)).timelines
    ends = [one.end_s or 0.0 for one in timelines]
    assert timelines[1].arrival_s >= ends[0] + 0.03 - 1e-9
    assert timelines[2].arrival_s >= ends[1] > 0


def test_what_follows_a_failed_request_is_not_sent() -> None:
    first, second, third = requests(3, 2, 1)
    asked = [first, dataclasses.replace(second, follows=0), dataclasses.replace(third, follows=1)]
    stream = ScriptedStream(fail={0: (1, RequestFailed("no"))})
    timelines = drive_all(asked, Schedule(), stream).timelines
    assert [(one.error or "").partition(":")[0] for one in timelines] == ["no", "not_sent", "not_sent"]
    assert stream.begun == [0]


def test_a_rule_ends_the_block_and_says_so() -> None:
    async def endless(index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        if index == 0:
            yield StreamChunk([1], None, 0)
        else:
            await asyncio.Event().wait()

    asked: list[tuple[Sequence[float], float]] = []

    def rule(
        send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        asked.append((first_token_s, now_s))
        return "enough"

    driven = drive_all(requests(1, 1, 1), Schedule(times_s=[0.0, 0.0, 99.0]), endless, rule)
    assert driven.stopped == "enough"
    assert [(one.error or "").partition(":")[0] for one in driven.timelines] == ["", "cancelled", "not_sent"]
    ((firsts, now_s),) = asked
    assert len(firsts) == 2
    assert not math.isnan(firsts[0])
    assert math.isnan(firsts[1])
    assert 1.0 <= now_s <= driven.duration_s


def test_an_engine_that_dies_leaves_the_timelines_it_had() -> None:
    stream = ScriptedStream(fail={1: (1, EngineError("engine-dead", "gone", lost=True))})
    with pytest.raises(EngineError) as caught:
        drive_all(requests(1, 3, 9), Schedule(concurrency=1), stream)
    first, second, third = caught.value.partial
    assert (first.error, first.output_tokens) == (None, 1)
    assert (second.error or "").startswith("engine: engine-dead")
    assert second.output_tokens == 1
    assert (third.error or "").startswith("not_sent")
    carried = pickle.loads(pickle.dumps(caught.value))
    assert (carried.label, carried.lost, list(carried.partial)) == ("engine-dead", True, list(caught.value.partial))
