"""Groups of requests with a common beginning: system prompts, or questions about one document."""

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


class SharedPrefix(WorkloadKind):
    """``groups`` prefixes of ``prefix_len`` tokens, each with ``prompts_per_group`` endings.

    Attributes:
        order: ``shuffled`` mixes the groups; ``grouped`` sends one group after the other, which is kindest to a small
            cache.
    """

    kind: Literal["shared_prefix"] = "shared_prefix"
    groups: Count
    prompts_per_group: Count
    prefix_len: Count
    suffix_len: Length
    output_len: Length = FixedLength(tokens=1)
    order: Literal["shuffled", "grouped"] = "shuffled"

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        lengths, tokens = generator(seed, Stream.LENGTHS), generator(seed, Stream.TOKENS)
        requests = []
        for _ in range(self.groups):
            prefix = draw_tokens(tokens, self.prefix_len, vocab_size)
            suffixes = self.suffix_len.draw(self.prompts_per_group, lengths)
            outputs = self.output_len.draw(self.prompts_per_group, lengths)
            for suffix, output in zip(suffixes, outputs, strict=True):
                ids = prefix + draw_tokens(tokens, suffix, vocab_size)
                requests.append(Request(prompt=Prompt(token_ids=ids, output_len=output)))
        if self.order == "grouped":
            return requests
        return [requests[index] for index in generator(seed, Stream.ORDER).permutation(len(requests))]

    def longest_input(self) -> int | None:
        return self.prefix_len + self.suffix_len.longest

    def longest_output(self) -> int | None:
        return self.output_len.longest
