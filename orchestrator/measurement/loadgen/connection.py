"""One HTTP/1.1 connection that serves one request at a time.

A general HTTP client encodes a request and finds a connection between the call and the first byte on the socket. Here
both are done beforehand, so at the deadline one write is left.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import httptools

from orchestrator.engines.timer import clock
from orchestrator.measurement.loadgen.answer import Answer

_SHOWN = 200
"""Bytes of an error's body that are kept."""


class Owner(Protocol):
    """What a connection tells to whoever uses it."""

    def on_data(self) -> None:
        """Called before received data is looked at: is a request due?"""

    def on_end(self, connection: Connection, answer: Answer, now: float) -> None:
        """The request of the connection has ended, well or not."""

    def on_lost(self, connection: Connection) -> None:
        """The connection is closed and serves no more."""


class Connection(asyncio.Protocol):
    """See the module. ``is_reusable`` says whether it may serve another request."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._answer: Answer | None = None
        self._error_body: bytearray | None = None
        self._transport: Any = None
        self._parser: Any = None
        self.is_reusable = True
        self.idle_since = clock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, answer: Answer) -> None:
        """Write a request; its send time is that of the write."""
        self._answer, self._error_body = answer, None
        self._parser = httptools.HttpResponseParser(self)
        answer.send = clock()
        self._transport.write(answer.wire)
        answer.wire = b""  # a long prompt takes a megabyte

    def close(self) -> None:
        """Close at once; a request under way gets no more data."""
        self.is_reusable = False
        self._answer = None
        self._transport.abort()

    def fail(self, label: str, detail: str) -> None:
        """End the request under way as failed, and close."""
        if (answer := self._answer) is None:
            return
        answer.fail(label, detail)
        self.close()
        self._owner.on_end(self, answer, clock())

    def data_received(self, data: bytes) -> None:
        self._now = clock()
        # Late data is only late data; a late send changes the load.
        self._owner.on_data()
        if self._answer is None:
            self.close()  # nobody asked: the two sides no longer agree where an answer begins
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail("bad_answer", f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        self.fail("disconnect", str(exc) if exc else "the server closed the connection before the answer ended")
        self._owner.on_lost(self)

    # Called by the parser.

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() != 200:
            self._error_body = bytearray()

    def on_body(self, data: bytes) -> None:
        if self._error_body is not None:
            self._error_body += data[: _SHOWN - len(self._error_body)]
        elif self._answer is not None:
            self._answer.feed(data, self._now)

    def on_message_complete(self) -> None:
        if (answer := self._answer) is None:
            return
        if self._error_body is not None:
            text = " ".join(self._error_body.decode(errors="replace").split())
            answer.fail(f"http_{self._parser.get_status_code()}", text or "no body")
        else:
            answer.finish()
        self.is_reusable = bool(self._parser.should_keep_alive())
        self._answer = None
        self.idle_since = self._now
        self._owner.on_end(self, answer, self._now)
