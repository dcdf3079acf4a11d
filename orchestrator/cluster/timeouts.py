"""How long an engine may take."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.cluster.watchdog import SILENCE_S


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Limits in seconds.

    Attributes:
        place_s: Until the actor is up in which the engine starts; also how long others may take to make room.
        growth_s: How long nodes may take that the cluster adds for an engine that it cannot hold; 0 where it adds none,
            and such an engine is refused at once.
        start_s: Start of the engine.
        block_s: A single block; past it the engine counts as hung.
        stop_s: Stop in good order; what is left then is killed.
        silence_s: See ``Watchdog``.
    """

    place_s: float = 60.0
    growth_s: float = 0.0
    start_s: float = 1800.0
    block_s: float = 1800.0
    stop_s: float = 30.0
    silence_s: float = SILENCE_S
