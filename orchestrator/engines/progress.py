"""What the blocks of this process have come to: counted while they run, so that a watchdog can tell a slow one from
one that hangs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Counts since this process began. The thread that drives a block writes them, and any other may read.

    Attributes:
        sent: Requests that were sent.
        ended: Requests that have ended, in whatever way.
        chunks: Chunks of streams that came; most are one token.
    """

    sent: int = 0
    ended: int = 0
    chunks: int = 0


PROGRESS = Progress()
