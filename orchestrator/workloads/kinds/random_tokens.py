"""Prompts of random tokens with lengths from a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.lengths import Length
from orchestrator.workloads.lengths.fixed import FixedLength
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count
from orchestrator.workloads.tokens import Stream, draw_tokens, generator


class RandomTokens(WorkloadKind):
    """``prompts`` independent requests; no two share a prefix."""

    kind: Literal["random"] = "random"
    prompts: Count = 1
    input_len: Length
    output_len: Length = FixedLength(tokens=1)

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        lengths, tokens = generator(seed, Stream.LENGTHS), generator(seed, Stream.TOKENS)
        inputs, outputs = self.input_len.draw(self.prompts, lengths), self.output_len.draw(self.prompts, lengths)
        return [
            Request(prompt=Prompt(token_ids=draw_tokens(tokens, count, vocab_size), output_len=output))
            for count, output in zip(inputs, outputs, strict=True)
        ]

    def longest_input(self) -> int | None:
        return self.input_len.longest

    def longest_output(self) -> int | None:
        return self.output_len.longest


def random_requests(
    count: int, *, input_len: int, output_len: int, seed: Sequence[int], vocab_size: int
) -> list[Request]:
    """``count`` requests of fixed lengths in tokens: what ``RandomTokens`` draws from the same seed."""
    kind = RandomTokens(
        prompts=count, input_len=FixedLength(tokens=input_len), output_len=FixedLength(tokens=output_len)
    )
    return kind.draw(seed, vocab_size=vocab_size)
