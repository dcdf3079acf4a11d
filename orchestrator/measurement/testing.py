"""A mock of an OpenAI-compatible server, for tests and for measuring load generators against known latencies.

It answers streamed completions over real sockets on the loopback interface, in a process of its own. Token k (from 0)
of an answer is written ``ttft_s + k itl_s`` after its request arrived, whatever else goes on: deadlines are absolute,
and a request does not slow another. It notes when each request really arrived and when its tokens were really written,
so that a client's figures can be compared with the truth. It can also misbehave::

    with MockServer(MockSettings(ttft_s=0.02, itl_s=0.005, short={3})) as server:
        result = run_load(Target(url=server.url, model=MODEL), requests, schedule)
        truth = server.truth()
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import httptools

from orchestrator.engines.timer import clock, make_timer
from orchestrator.errors import ChunksmithError

MODEL = "mock"
"""The name under which it serves."""

_START_TIMEOUT_S = 60.0
_HELD_BACK = float("inf")


@dataclass(frozen=True, kw_only=True)
class MockSettings:
    """How it answers. Requests are counted from 0 in the order of their arrival.

    Attributes:
        ttft_s: Seconds from a request's arrival to its first token, 0 or more.
        itl_s: Seconds from one token to the next, 0 or more.
        refuse: Requests that are answered with status 503.
        drop: Requests whose connection is closed after the first token.
        short: Requests that get half of their tokens, rounded down, and at least one.
        stall: Requests that get one token, and then nothing more.
        slow: Requests whose first token comes ``slow_s`` later.
        die_at: The request at whose arrival the process dies; None for never.
        send_usage: Whether an answer ends with its token counts, where it was asked for.
        keep_alive: Whether a connection serves more than one answer.
    """

    ttft_s: float = 0.02
    itl_s: float = 0.005
    refuse: Collection[int] = ()
    drop: Collection[int] = ()
    short: Collection[int] = ()
    stall: Collection[int] = ()
    slow: Collection[int] = ()
    slow_s: float = 0.0
    die_at: int | None = None
    send_usage: bool = True
    keep_alive: bool = True

    def __post_init__(self) -> None:
        if self.ttft_s < 0 or self.itl_s < 0 or self.slow_s < 0:
            raise ValueError("ttft_s, itl_s and slow_s must not be negative")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What really happened to one request. Times are of the monotonic clock that all processes of a Linux machine
    share (``time.perf_counter``), in seconds.

    Attributes:
        request_id: Header ``X-Request-Id``, empty where there was none.
        arrival_s: When the whole request had been read.
        written_s: When each token was handed to the socket.
    """

    request_id: str
    arrival_s: float
    written_s: list[float]


class MockServer:
    """Runs the server in another process while the ``with`` block lasts; that process ends with ours, however we end.

    Raises:
        ChunksmithError: It did not start.
    """

    def __init__(self, settings: MockSettings | None = None) -> None:
        self._settings = settings or MockSettings()
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        words = json.dumps(dataclasses.asdict(self._settings), default=sorted)
        command = [sys.executable, "-m", "orchestrator.measurement.testing", words]
        # It ends when its input does.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self._stop()
            raise ChunksmithError("the mock server did not start")
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._process is not None
        return self._process.pid

    def truth(self) -> list[Truth]:
        """All completions that were asked for so far, in the order of their arrival, faulty ones included."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/mock/truth", timeout=_START_TIMEOUT_S) as answer:
            return [Truth(**record) for record in json.load(answer)]

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_START_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
        self._process = None


class _Mock:
    """State of the server: settings, truth, and the tokens that are due."""

    def __init__(self, settings: MockSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.truth: list[Truth] = []
        self._due: list[tuple[float, int, _Completion]] = []
        self._timer = make_timer(loop, self.write_due)
        self._next = _HELD_BACK

    def begin(self, connection: _Connection, body: dict[str, Any], request_id: str, arrival: float) -> None:
        number = len(self.truth)
        if number == self.settings.die_at:
            os._exit(1)
        truth = Truth(request_id=request_id, arrival_s=arrival, written_s=[])
        self.truth.append(truth)
        if number in self.settings.refuse:
            connection.answer(503, {"error": {"message": "mock: refused"}})
            return
        completion = _Completion(connection, body, number, truth, self.settings)
        heapq.heappush(self._due, (completion.due(), number, completion))
        self._arm()

    def write_due(self) -> None:
        while self._due and self._due[0][0] <= clock():
            _, number, completion = heapq.heappop(self._due)
            if completion.write():
                heapq.heappush(self._due, (completion.due(), number, completion))
        self._next = _HELD_BACK
        self._arm()

    def write_if_due(self) -> None:
        if clock() >= self._next:
            self.write_due()

    def _arm(self) -> None:
        if self._due and self._due[0][0] < self._next:
            self._next = self._due[0][0]
            self._timer.arm(self._next)


class _Completion:
    """One answer under way."""

    def __init__(
        self, connection: _Connection, body: dict[str, Any], number: int, truth: Truth, settings: MockSettings
    ) -> None:
        self._connection, self._truth, self._settings = connection, truth, settings
        asked = int(body.get("max_tokens") or 16)
        self._tokens = max(1, asked // 2) if number in settings.short else asked
        self._drops, self._stalls = number in settings.drop, number in settings.stall
        self._first = truth.arrival_s + settings.ttft_s + (settings.slow_s if number in settings.slow else 0.0)
        prompt = body.get("prompt") or ""
        self._prompt_tokens = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        self._usage = settings.send_usage and bool((body.get("stream_options") or {}).get("include_usage"))
        self._ids = bool(body.get("return_token_ids"))
        self._written = 0

    def due(self) -> float:
        """When the next token is."""
        return self._first + self._written * self._settings.itl_s

    def write(self) -> bool:
        """Write the next token; say whether another one follows."""
        if self._connection.is_closed:
            return False
        self._written += 1
        is_last = self._written == self._tokens
        data = b"" if self._written > 1 else _stream_head(self._settings.keep_alive)
        data += _http_chunk(self._event(is_last))
        if is_last:
            data += self._end()
        self._truth.written_s.append(clock())
        self._connection.write(data)
        if self._drops or (is_last and not self._settings.keep_alive):
            self._connection.close()
        return not (is_last or self._drops or self._stalls)

    def _event(self, is_last: bool) -> bytes:
        ids = b',"token_ids":[%d]' % (10 + self._written) if self._ids else b""
        reason = b'"length"' if is_last else b"null"
        choice = b'{"index":0,"text":" mock"%s,"finish_reason":%s}' % (ids, reason)
        return b'{"id":"mock","object":"text_completion","model":"mock","choices":[%s]}' % choice

    def _end(self) -> bytes:
        usage = b""
        if self._usage:
            counts = {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._written}
            counts["total_tokens"] = self._prompt_tokens + self._written
            usage = _http_chunk(json.dumps({"id": "mock", "choices": [], "usage": counts}).encode())
        return usage + _http_chunk(b"[DONE]") + b"0\r\n\r\n"


class _Connection(asyncio.Protocol):
    """One client. A request is answered before the next is read, as HTTP/1.1 clients expect."""

    def __init__(self, mock: _Mock) -> None:
        self._mock = mock
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._url = b""
        self._request_id = ""
        self._body = bytearray()
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def data_received(self, data: bytes) -> None:
        self._now = clock()
        self._mock.write_if_due()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def answer(self, status: int, content: Any) -> None:
        """A whole answer, not a stream."""
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status} Mock\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._url, self._request_id = b"", ""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._request_id = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        path = self._url.decode("latin-1").partition("?")[0]
        if path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif path == "/health":
            self.answer(200, {})
        elif path == "/mock/truth":
            self.answer(200, [dataclasses.asdict(truth) for truth in self._mock.truth])
        elif path == "/v1/completions":
            self._complete()
        else:
            self.answer(404, {"error": {"message": f"mock: no {path}"}})

    def _complete(self) -> None:
        try:
            body = json.loads(self._body)
        except ValueError:
            body = None
        if not isinstance(body, dict) or not body.get("stream"):
            self.answer(400, {"error": {"message": "mock: only streamed completions"}})
            return
        self._mock.begin(self, body, self._request_id, self._now)


def _stream_head(keep_alive: bool) -> bytes:
    connection = b"keep-alive" if keep_alive else b"close"
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: %s\r\n\r\n" % connection
    )


def _http_chunk(event: bytes) -> bytes:
    """One server-sent event as one chunk of the body."""
    return b"%x\r\ndata: %s\n\n\r\n" % (len(event) + 8, event)


async def _serve(settings: MockSettings) -> None:
    loop = asyncio.get_running_loop()
    mock = _Mock(settings, loop)
    server = await loop.create_server(lambda: _Connection(mock), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    over = asyncio.Event()
    # Whoever started us holds the other end, and nothing is ever written to it.
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(_serve(MockSettings(**json.loads(sys.argv[1]))))
