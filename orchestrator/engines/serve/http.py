"""HTTP/1.1 over a Unix socket, one connection for each request: what an engine needs of it, no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httptools

_READ_BYTES: Final = 256 * 1024
_SHOWN: Final = 400
"""Characters of an error's body that are kept."""


class StatusError(Exception):
    """The server answered with another status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {_message(body)}")
        self.status = status


class SocketClient:
    """Talks to one server.

    Every method raises ConnectionError when the server cannot be reached, or closes the connection before its answer
    has ended, or sends what is no HTTP; and StatusError for any status but 200.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def get(self, path: str) -> bytes:
        """The body of an answer."""
        async with self._exchange("GET", path, b"") as pieces:
            return b"".join([piece async for piece in pieces])

    async def call(self, path: str, given: Mapping[str, Any]) -> Any:
        """Post JSON, and return the JSON of the answer."""
        async with self._exchange("POST", path, json.dumps(given).encode()) as pieces:
            return json.loads(b"".join([piece async for piece in pieces]))

    async def events(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """Post JSON, and give the data of each server-sent event as soon as it comes. Closing the iterator closes the
        connection, by which the server knows that nobody waits any longer."""
        buffer = b""
        async with self._exchange("POST", path, body) as pieces:
            async for piece in pieces:
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        yield line[5:].strip()

    @asynccontextmanager
    async def _exchange(self, method: str, path: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket, limit=_READ_BYTES)
        except OSError as error:
            raise ConnectionError(f"cannot be reached: {error}") from error
        try:
            head = [
                f"{method} {path} HTTP/1.1",
                "Host: localhost",
                "Connection: close",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
            ]
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
            yield _pieces(reader)
        finally:
            writer.transport.abort()


class _Answer:
    """What the parser found."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.status = 0
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """Take what was read; return what it brought of the body."""
        self._parser.feed_data(data)
        body, self._body = b"".join(self._body), []
        return body

    # Called by the parser.

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body of an answer as it comes."""
    answer, refusal = _Answer(), b""
    while not answer.is_complete:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise ConnectionError("closed the connection before its answer ended")
        try:
            piece = answer.feed(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"answers with no HTTP: {error}") from error
        if answer.status != 200:
            refusal += piece
        elif piece:
            yield piece
    if answer.status != 200:
        raise StatusError(answer.status, refusal)


def _message(body: bytes) -> str:
    """The text in an error's body, in whichever of the forms that vLLM and our RPC have."""
    text = body.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(text)["error"]
        text = str(found["message"] if isinstance(found, dict) else found)
    return " ".join(text.split())[:_SHOWN] or "no body"
