"""Patience with a storage that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from optuna.exceptions import OptunaError

from orchestrator.errors import ChunksmithError
from orchestrator.records.masking import mask

T = TypeVar("T")

LIMIT_S = 600.0
"""How long a storage may be away."""

_FIRST_S, _LONGEST_S = 0.5, 30.0


class Retrying:
    """Calls what fails because the storage does not answer again, after pauses that double.

    Args:
        say: Told once when it stops answering, and once when it answers again.
        limit_s: Seconds after which it counts as lost.
        sleep: Waits.
        clock: Seconds, rising.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        limit_s: float = LIMIT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._limit_s, self._sleep, self._clock = say, limit_s, sleep, clock

    def call(self, call: Callable[[], T]) -> T:
        """What the call returns. It is made again from its beginning: what it did before must not stand in its way.

        Raises:
            ChunksmithError: The storage stayed away.
        """
        begin, pause = self._clock(), _FIRST_S
        is_told = False
        while True:
            try:
                result = call()
            except Exception as error:
                if not is_outage(error):
                    raise
                why = outage_line(error)
                if self._clock() - begin + pause > self._limit_s:
                    raise ChunksmithError(
                        f"the study's storage has been away for {self._limit_s:.0f} s: {why}. What was measured is "
                        "recorded: go on with --resume when it is back"
                    ) from error
                if not is_told:
                    self._say(f"study storage: no answer ({why}); trying again for up to {self._limit_s:.0f} s")
                    is_told = True
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_S)
                continue
            if is_told:
                self._say(f"study storage: answers again after {self._clock() - begin:.0f} s")
            return result


def is_outage(error: BaseException) -> bool:
    """Whether an error means that a database or a storage proxy cannot be reached, or has just gone."""
    return any(_is_outage(one) for one in _chain(error))


def outage_line(error: BaseException) -> str:
    """The first line of the innermost cause, without a password."""
    *_, cause = _chain(error)
    text = str(getattr(cause, "details", lambda: None)() or cause).strip()
    return mask(text.splitlines()[0] if text else type(cause).__name__)


def _is_outage(error: BaseException) -> bool:
    # Imported here: a study in a journal does without a library of databases, which takes a while to load.
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

    if isinstance(error, DBAPIError):
        return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    code = getattr(error, "code", None)
    return type(error).__module__.startswith("grpc") and getattr(code() if callable(code) else None, "name", "") in (
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "CANCELLED",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__ if isinstance(one, OptunaError) else one.__cause__
