"""One request of a block: what is sent, and what has to happen first."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.workloads.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt with its place in the block.

    Attributes:
        at_s: Seconds from the start of the block at which a trace or a preset has it arrive; None where the arrival
            process alone decides.
        follows: Index of the request before it in its conversation. It is sent when that one has ended; when that one
            failed, it is not sent. Always smaller than its own index.
        think_s: Seconds between the end of that request and this one.
    """

    prompt: Prompt
    at_s: float | None = None
    follows: int | None = None
    think_s: float = 0.0
