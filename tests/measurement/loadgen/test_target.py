from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from orchestrator.errors import UserError
from orchestrator.measurement.loadgen import Target, check_target
from orchestrator.measurement.loadgen.target import no_answer_reason
from orchestrator.measurement.testing import MODEL, MockServer
from orchestrator.workloads import Prompt


def request(target: Target) -> tuple[str, dict[str, str], dict[str, Any]]:
    head, _, body = target.encode(Prompt(token_ids=[5, 6], output_len=3), "block-7").partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["Content-Length"]) == len(body)
    return first, headers, json.loads(body)


@pytest.mark.parametrize(
    ("url", "path", "address", "host", "is_tls"),
    [
        ("http://box:8000", "/v1/completions", ("box", 8000), "box:8000", False),
        ("http://box:8000/v1/", "/v1/completions", ("box", 8000), "box:8000", False),
        ("https://box/some/where", "/some/where/v1/completions", ("box", 443), "box", True),
        ("http://[::1]:81/v1", "/v1/completions", ("::1", 81), "[::1]:81", False),
    ],
)
def test_the_parts_of_a_url(url: str, path: str, address: tuple[str, int], host: str, is_tls: bool) -> None:
    target = Target(url=url, model="m")
    first, headers, _ = request(target)
    assert first == f"POST {path} HTTP/1.1"
    assert headers["Host"] == host
    assert target.address == address
    assert target.is_tls is is_tls


def test_a_request_asks_for_all_tokens_as_a_stream_with_counts() -> None:
    _, headers, body = request(Target(url="http://box", model="m", api_key="secret"))
    assert body == {
        "model": "m",
        "prompt": [5, 6],
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "return_token_ids": True,
    }
    assert headers["Authorization"] == "Bearer secret"
    assert headers["X-Request-Id"] == "block-7"


def test_other_fields_replace_those_of_vllm_but_not_what_the_measurement_needs() -> None:
    _, headers, body = request(Target(url="http://box", model="m", body={"temperature": 0.5, "stream": False}))
    assert body["temperature"] == 0.5
    assert body["stream"] is True
    assert "ignore_eos" not in body
    assert "Authorization" not in headers


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Target(url="http://box", model="m", api_key="secret"))


@pytest.mark.parametrize("url", ["box:8000", "ftp://box", "http://", "http://box:99999", "http://box/?a=b", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="url: must be http://"):
        Target(url=url, model="m")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_out_is_above_0(value: float) -> None:
    with pytest.raises(UserError, match="timeout_s: must be above 0"):
        Target(url="http://box", model="m", timeout_s=value)


def test_whether_something_answers() -> None:
    with MockServer() as server:
        target = Target(url=server.url, model="another")
        assert no_answer_reason(target) is None
    why = no_answer_reason(target)
    assert why is not None
    assert "refused" in why
    with answering(503, b"") as url:
        assert no_answer_reason(Target(url=url, model="m")) is None


def test_a_ready_server_with_the_model_passes() -> None:
    with MockServer() as server:
        check_target(Target(url=server.url, model=MODEL))
        check_target(Target(url=f"{server.url}/v1", model=MODEL))
        with pytest.raises(UserError, match="unknown model 'mok'; did you mean 'mock'"):
            check_target(Target(url=server.url, model="mok"))
    with pytest.raises(UserError, match=r"cannot be reached: .*refused"):
        check_target(Target(url=server.url, model=MODEL))


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that always answers in one way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, b"", "not ready: /v1/models answers 503"),
        (200, b"<html>", "does not answer as an OpenAI-compatible server does"),
        (200, b'{"models": []}', "does not answer as an OpenAI-compatible server does"),
        (200, b"[]", "does not answer as an OpenAI-compatible server does"),
    ],
)
def test_a_server_that_is_not_ready_is_refused(status: int, body: bytes, message: str) -> None:
    with answering(status, body) as url, pytest.raises(UserError, match=message):
        check_target(Target(url=url, model="m"))
