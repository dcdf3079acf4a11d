"""What the commands that start engines share: Ray's authentication, and an end by SIGTERM that leaves nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.cluster import AuthMode


def auth_mode(given: str | None) -> AuthMode | None:
    """The value of ``--ray-auth``. Raises UserError if it is neither token nor disabled."""
    if given in (None, "token", "disabled"):
        return cast("AuthMode | None", given)
    raise UserError(f"--ray-auth: must be token or disabled, got {given!r}")


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Meanwhile SIGTERM (``ray job stop``, a batch system) ends the command as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
