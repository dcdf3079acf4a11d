"""An S3-compatible server of a test's own: moto on the loopback, and a wire to it that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

KEY, SECRET = "AKIAEXAMPLE", "s3cret/k3y+x"
"""Of the user; moto believes everyone."""


@contextmanager
def s3_server() -> Iterator[str]:
    """The server's endpoint. Its buckets go with the process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def settings(endpoint: str) -> dict[str, str]:
    """Environment with which every S3 driver goes there."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def use(endpoint: str, patch: pytest.MonkeyPatch) -> None:
    """Let drivers in this process go there."""
    for name, value in settings(endpoint).items():
        patch.setenv(name, value)


def make_bucket(endpoint: str, name: str) -> str:
    """Make a bucket; return its address."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    return f"s3://{name}"


class FaultyWire:
    """Fault: a wire to a server that can be cut, or that goes dead once so many bytes of an upload have passed.

    Attributes:
        endpoint: What a client connects to.
    """

    def __init__(self, endpoint: str) -> None:
        self._target = endpoint.removeprefix("http://")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._is_cut = False
        self._left: int | None = None
        self.is_dead = threading.Event()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._is_cut = True
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let everything pass again."""
        self._is_cut, self._left = False, None
        self.is_dead.clear()

    def die_after(self, size: int) -> None:
        """After so many further bytes from clients, nothing passes: they wait for ever, as behind a dead router."""
        self._left = size

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            if self._is_cut:
                client.close()
                continue
            host, port = self._target.split(":")
            server = socket.create_connection((host, int(port)))
            self._open |= {client, server}
            for source, target, may in ((client, server, self._may_pass), (server, client, lambda size: size)):
                threading.Thread(target=self._pump, args=(source, target, may), daemon=True).start()

    def _may_pass(self, size: int) -> int:
        if self._left is None:
            return size
        size = min(size, self._left)
        self._left -= size
        return size

    def _pump(self, source: socket.socket, target: socket.socket, may: Callable[[int], int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                passes = may(len(data))
                target.sendall(data[:passes])
                if passes < len(data):
                    self.is_dead.set()
                    return
        for one in (source, target):
            self._open.discard(one)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
                one.close()
