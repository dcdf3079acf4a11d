"""An event loop in a thread of its own: one thread may wait for a block while another ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CANCEL_TIMEOUT_S: Final = 1.0


class BackgroundLoop:
    """Runs from its making until ``close``."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._pending: set[Future[Any]] = set()
        self._noting, self._closing = threading.Lock(), threading.Lock()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives, run in the loop.

        Raises:
            concurrent.futures.CancelledError: ``cancel_all`` was called meanwhile.
        """
        # In one piece: the work may have begun, and somebody may want to end it, before it is noted.
        with self._noting:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._pending.add(future)
        try:
            return future.result()
        finally:
            self._pending.discard(future)

    def cancel_all(self) -> None:
        """End whatever is waited for."""
        with self._noting:
            pending = list(self._pending)
        for future in pending:
            future.cancel()

    def close(self) -> None:
        """Cancel what still runs, and stop the loop; does nothing the second time."""
        with self._closing:
            if self._thread.is_alive():
                asyncio.run_coroutine_threadsafe(_cancel_tasks(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT_S)
