"""Preset: a few very long prompts, whose prefill is nearly all of the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count
from orchestrator.workloads.tokens import Stream, draw_tokens, generator


class LongContext(WorkloadKind):
    """``prompts`` of different lengths near ``input_len``: equal ones would fill a workspace always in the same way.

    The lengths are spread evenly from ``(1 - spread) input_len`` to ``input_len`` and shuffled, so every block holds
    the same lengths: a block's work does not depend on its seed.
    """

    kind: Literal["long_context"] = "long_context"
    prompts: Count = 4
    input_len: Count = 32_768
    spread: Annotated[float, Field(ge=0, lt=1)] = 0.25
    output_len: Count = 1

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        tokens = generator(seed, Stream.TOKENS)
        lengths = [self._lengths()[index] for index in generator(seed, Stream.ORDER).permutation(self.prompts)]
        return [
            Request(prompt=Prompt(token_ids=draw_tokens(tokens, count, vocab_size), output_len=self.output_len))
            for count in lengths
        ]

    def longest_input(self) -> int | None:
        return self.input_len

    def longest_output(self) -> int | None:
        return self.output_len

    def _lengths(self) -> list[int]:
        step = self.spread * self.input_len / max(self.prompts - 1, 1)
        return [max(1, self.input_len - round(index * step)) for index in range(self.prompts)]
