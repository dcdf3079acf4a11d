"""Preset: prompts that the scheduler has to split over several steps, so that chunked prefill is what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count, Seconds
from orchestrator.workloads.tokens import Stream, draw_tokens, generator


class ChunkedSteps(WorkloadKind):
    """``prompts`` of ``(steps - 1) * step_tokens + last_tokens`` tokens, ``every_s`` seconds apart.

    With ``step_tokens`` at the engine's ``max_num_batched_tokens`` a prompt alone takes ``steps`` steps, and all but
    the first compute attention over context that is in the cache already: the path with the workspace. Prompts that
    overlap share their steps. The arrival kind ``trace_time`` keeps the times.

    Attributes:
        last_tokens: Tokens of the last step, 1 to ``step_tokens``; ``step_tokens`` if omitted.
    """

    kind: Literal["chunked_steps"] = "chunked_steps"
    prompts: Count = 1
    step_tokens: Count
    steps: Count = 4
    last_tokens: Count | None = None
    output_len: Count = 1
    every_s: Seconds = 0.0

    @model_validator(mode="after")
    def _last_fits(self) -> Self:
        if self.last_tokens is not None and self.last_tokens > self.step_tokens:
            raise ValueError(f"last_tokens {self.last_tokens} is above step_tokens {self.step_tokens}")
        return self

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        tokens = generator(seed, Stream.TOKENS)
        return [
            Request(
                prompt=Prompt(
                    token_ids=draw_tokens(tokens, self._input_len(), vocab_size),
                    output_len=self.output_len,
                ),
                at_s=index * self.every_s,
            )
            for index in range(self.prompts)
        ]

    def longest_input(self) -> int | None:
        return self._input_len()

    def longest_output(self) -> int | None:
        return self.output_len

    def _input_len(self) -> int:
        last = self.step_tokens if self.last_tokens is None else self.last_tokens
        return (self.steps - 1) * self.step_tokens + last
