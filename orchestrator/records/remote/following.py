"""A mirror that follows a sweep: in a thread of its own, so that the sweep never waits for a storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from orchestrator.errors import ChunksmithError
from orchestrator.records.folder import RunFolder
from orchestrator.records.remote.mirror import Mirror

EVERY_S: Final = 5.0
"""Least time between two looks at the run folder, each of which may end a file of every table."""

SHARE: Final = 0.05
"""Of the time that the sweep has run: so long is between two looks, and a sweep of an hour has some hundred files."""

MOST_S: Final = 300.0
"""Most time between two looks."""

FIRST_S, LONGEST_S = 1.0, 60.0
"""Pauses after a failure; each is twice the one before."""

END_S: Final = 60.0
"""How long the end of a sweep waits for the storage."""

STOP_S: Final = 10.0
"""Likewise, of a sweep that is stopped or fails: it can be resumed."""

SHORT_S: Final = 2.0
"""A wait that needs no words."""


class Following:
    """Sends what the sweep writes, from ``with`` to its end. Whatever the storage does, the sweep goes on.

    A storage that fails is tried again after pauses that double, and then gets all that it lacks. When it lacks
    something at the end, that is said.

    Args:
        say: Progress: told when the storage fails, and when it is back.
        warn: Told at the end when records did not get there.
        every_s: Least seconds between two looks.
        end_s: Seconds that the end may wait.
    """

    def __init__(
        self,
        run: RunFolder,
        mirror: Mirror,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        *,
        every_s: float = EVERY_S,
        first_s: float = FIRST_S,
        end_s: float = END_S,
        stop_s: float = STOP_S,
    ) -> None:
        self._run, self._mirror, self._say, self._warn = run, mirror, say, warn
        self._every_s, self._first_s, self._end_s, self._stop_s = every_s, first_s, end_s, stop_s
        self._over, self._given_up = threading.Event(), threading.Event()
        self._trouble: str | None = None
        self._away_since: float | None = None
        self._thread = threading.Thread(target=self._follow, name="mirror", daemon=True)

    def __enter__(self) -> Following:
        self._say(f"records go to {self._mirror.address} too")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        limit_s = self._end_s if kind is None else self._stop_s
        self._over.set()
        self._thread.join(limit_s)
        self._thread.join(min(SHORT_S, limit_s / 2))
        if self._thread.is_alive():
            self._say(f"mirror: waiting for {self._mirror.address} for up to {limit_s:.0f} s")
            self._thread.join(limit_s)
        self._given_up.set()
        if self._run.provenance.exists() and (what := self._missing()):
            why = f" ({self._trouble})" if self._trouble else ""
            self._warn(
                f"mirror: {what} did not get to {self._mirror.address}{why}. The run folder has everything; to send "
                f"it: chunksmith records mirror {self._run.path}"
            )

    def _missing(self) -> str:
        try:
            names = self._mirror.missing()
        except ChunksmithError as error:
            return str(error)
        return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""

    def _follow(self) -> None:
        pause, begin = self._every_s, time.monotonic()
        while True:
            is_last = self._over.is_set()
            if (self._given_up if is_last else self._over).wait(pause) and is_last:
                return
            is_last, was_away = self._over.is_set(), self._away_since is not None
            if not self._is_up_to_date():
                pause = min(2 * pause, LONGEST_S) if was_away and not is_last else self._first_s
            elif is_last:
                return
            else:
                pause = min(max(self._every_s, SHARE * (time.monotonic() - begin)), MOST_S)

    def _is_up_to_date(self) -> bool:
        """Send what is missing; return whether the storage has everything."""
        if not self._run.provenance.exists():
            # The sweep has not begun, and may yet be refused.
            return True
        try:
            self._mirror.send()
        except ChunksmithError as error:
            self._trouble = str(error)
            if self._away_since is None:
                self._away_since = time.monotonic()
                self._say(f"mirror: {error}; the sweep goes on, and what is missing there follows")
            return False
        if self._away_since is not None:
            self._say(f"mirror: up to date again after {time.monotonic() - self._away_since:.0f} s")
        self._away_since = self._trouble = None
        return True
