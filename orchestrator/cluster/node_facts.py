"""Versions and hardware of this process's node, read once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any

from orchestrator.records import collect

_collecting = threading.Lock()


def own_facts() -> Mapping[str, Any]:
    """See ``orchestrator.records.collect``. Any thread may ask: the first collects them for all."""
    with _collecting:
        return _collected()


@functools.cache
def _collected() -> Mapping[str, Any]:
    return collect()
