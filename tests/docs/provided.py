"""What a block of a page finds when it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.commands import Run


@dataclass(frozen=True)
class Provided:
    """What a block finds.

    Attributes:
        words: What stands in place of a host, a port or a name that a page can only give as an example.
        run: How its commands are run; None leaves that to what else it needs.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    run: Run | None = None


Provider = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Provided]]
"""Gets the folder in which the block is run, and what may be patched for so long."""
