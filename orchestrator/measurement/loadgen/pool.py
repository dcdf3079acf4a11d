"""Open connections, kept ahead of the requests that will need them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable

from orchestrator.engines.timer import clock
from orchestrator.measurement.loadgen.connection import Connection, Owner
from orchestrator.measurement.loadgen.target import Target

MAX_IDLE_S = 1.0
"""An idle connection is closed after so long. A server closes it too, after 5 s as vLLM does or after 2 s as some do,
and a request that is sent just then is lost; so the client has to be the first."""

SPARE = 2
"""Idle connections that are kept ready beyond what is known to be due."""

AT_ONCE = 4
"""Connections that are opened or closed together: each takes about as long as sending a few requests."""


class ConnectionPool:
    """Connections to one server, used in turn, so that none is idle for long while requests come.

    Args:
        owner: Is told what happens on the connections.
        on_open: Called when a connection has been opened that was not there at once.
        on_error: Called when a connection could not be opened.
    """

    def __init__(
        self,
        target: Target,
        owner: Owner,
        *,
        on_open: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._target, self._owner = target, owner
        self._on_open, self._on_error = on_open, on_error
        self._tls = ssl.create_default_context() if target.is_tls else None
        self._ip = ""
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()

    async def fill(self, count: int) -> None:
        """Find the server and open so many connections. Raises OSError if one cannot be opened."""
        await self._find()
        for connection in await asyncio.gather(*(self._connect() for _ in range(count))):
            self.release(connection)

    def take(self) -> Connection | None:
        """The connection that has been idle longest, or None if none is."""
        return self._idle.popleft() if self._idle else None

    def release(self, connection: Connection) -> None:
        """Give back a connection whose answer has ended."""
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def open_more(self, waiting: int, soon: int = 0) -> None:
        """Open connections for requests that wait for one, and a few of those that are missing for the next ones."""
        missing = waiting + soon + SPARE - len(self._idle) - len(self._opening)
        for _ in range(min(missing, max(AT_ONCE, missing // 8, waiting - len(self._opening)))):
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def drop_stale(self) -> None:
        """Close a few of those that have been idle for too long."""
        oldest = clock() - MAX_IDLE_S
        for _ in range(AT_ONCE):
            if not self._idle or self._idle[0].idle_since > oldest:
                return
            self._idle.popleft().close()

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """Close everything at once."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in list(self._all):
            connection.close()
        # The transports close in the next turn of the loop.
        await asyncio.sleep(0)

    async def _find(self) -> None:
        """Look the host up once: a look-up for every connection takes longer than the connection, in a thread."""
        host, port = self._target.address
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for *_, address in found:
            self._ip = str(address[0])
            try:
                self.release(await self._connect())
            except OSError as error:
                refusal = error
            else:
                return
        raise refusal

    async def _open(self) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            self._on_error(error)
            return
        self.release(connection)
        self._on_open()

    async def _connect(self) -> Connection:
        host, port = self._target.address
        opening = asyncio.get_running_loop().create_connection(
            lambda: Connection(self._owner),
            self._ip,
            port,
            ssl=self._tls,
            server_hostname=host if self._tls else None,
        )
        # TimeoutError is an OSError.
        _, connection = await asyncio.wait_for(opening, self._target.connect_timeout_s)
        connection.idle_since = clock()
        self._all.add(connection)
        return connection
