from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measurement.loadgen.answer import Answer
from orchestrator.workloads import Prompt


def event(content: Any, end: str = "\n\n") -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return f"data: {text}{end}".encode()


def token(number: int, text: str = "x", reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "token_ids": [number], "finish_reason": reason}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
}
STREAM = [token(1), token(2, text="é"), token(3, reason="length"), USAGE, "[DONE]"]


def read(pieces: list[bytes], output_len: int = 3) -> Answer:
    answer = Answer(0, Prompt(token_ids=[7, 8], output_len=output_len), b"")
    answer.send = 0.0
    for number, piece in enumerate(pieces):
        answer.feed(piece, float(number + 1))
    answer.finish()
    return answer


@given(st.data(), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_an_answer_is_the_same_however_the_stream_is_cut(data: st.DataObject, end: str) -> None:
    stream = b": a comment\n\n" + b"".join(event(content, end) for content in STREAM)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:stop] for begin, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    timeline = read(pieces).timeline(0.0)
    assert timeline.error is None
    assert timeline.output_token_ids == [1, 2, 3]
    assert (timeline.prompt_tokens, timeline.output_tokens, timeline.cached_tokens) == (9, 3, 4)
    assert len(timeline.token_times_s) == 3


def test_each_token_has_the_time_at_which_it_was_read() -> None:
    timeline = read([event(content) for content in STREAM]).timeline(0.5)
    assert timeline.token_times_s == [0.5, 1.5, 2.5]
    assert (timeline.first_token_s, timeline.end_s, timeline.send_s) == (0.5, 2.5, -0.5)


def test_a_chunk_that_only_tells_the_reason_of_the_end_brings_no_token() -> None:
    end = {"choices": [{"text": "", "finish_reason": "stop"}]}
    stream = [{"choices": [{"text": text}]} for text in "abc"]
    timeline = read([event(content) for content in [*stream, end, USAGE, "[DONE]"]]).timeline(0.0)
    assert timeline.error is None
    assert len(timeline.token_times_s) == 3


def test_a_token_without_visible_text_is_a_token() -> None:
    stream = [token(1, text=""), token(2, text=""), token(3, text="", reason="length"), USAGE, "[DONE]"]
    assert len(read([event(content) for content in stream]).timeline(0.0).token_times_s) == 3


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        ([token(1), {"error": {"message": "no memory", "code": 500}}], "server_error: no memory"),
        ([{"error": "no memory"}], "server_error: no memory"),
        (STREAM[:-1], "bad_answer: the stream ended without [DONE]"),
        ([token(1), "{", "[DONE]"], "bad_answer: not a completion chunk: b'{'"),
        ([{"object": "x"}, "[DONE]"], 'bad_answer: not a completion chunk: b\'{"object": "x"}\''),
        (["3", "[DONE]"], "bad_answer: not a completion chunk: b'3'"),
        ([{"choices": [{"delta": {}}]}, "[DONE]"], "bad_answer: not a completion chunk: "),
        ([token(1), token(2), "[DONE]"], "short: 2 of 3 tokens"),
        ([{"choices": [{"text": "x"}]}, "[DONE]"], "bad_answer: no usage and no token ids"),
    ],
)
def test_what_is_wrong_has_a_class(stream: list[Any], error: str) -> None:
    timeline = read([event(content) for content in stream]).timeline(0.0)
    assert timeline.error is not None
    assert timeline.error.startswith(error)
    assert timeline.end_s is None


def test_the_first_error_stays() -> None:
    answer = read([event({"error": "first"})])
    answer.fail("timeout", "later")
    assert answer.error == "server_error: first"


def test_a_request_that_was_never_sent_has_its_send_at_its_arrival() -> None:
    answer = Answer(0, Prompt(token_ids=[7], output_len=1), b"")
    answer.arrival = 3.0
    answer.fail("not_sent", "the server is gone")
    timeline = answer.timeline(1.0)
    assert (timeline.arrival_s, timeline.send_s, timeline.first_token_s, timeline.end_s) == (2.0, 2.0, None, None)
