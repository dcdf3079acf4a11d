"""Engines that were stopped: what is left of them goes a moment later, by the reaper of their machine."""

from __future__ import annotations

import time
from typing import Final

from orchestrator.cluster import reaper

_GONE_S: Final = 30.0
"""How long an engine is waited for."""

_POLL_S: Final = 0.05

_leaving: set[str] = set()


def leave(engine_id: str) -> None:
    """An engine of this process was stopped, and is not waited for now."""
    _leaving.add(engine_id)


def wait_for_leaving() -> None:
    """Wait for the engines that left, so that the next one finds the machine free."""
    for engine_id in list(_leaving):
        wait_until_gone(engine_id)
        _leaving.discard(engine_id)


def wait_until_gone(engine_id: str, timeout_s: float = _GONE_S) -> None:
    """Wait for the engine's processes and files on this node, if it ran here."""
    # Those of the ranks that ran here have its id in front of their names.
    leases, deadline = f"{engine_id}*.json", time.monotonic() + timeout_s
    while any(reaper.lease_folder().glob(leases)) or any(reaper.engine_processes(engine_id)):
        if time.monotonic() >= deadline:
            return
        time.sleep(_POLL_S)
