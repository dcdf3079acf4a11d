"""Preset: bursts of short requests that arrive behind one huge prompt and wait for its prefill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.lengths import Length
from orchestrator.workloads.lengths.fixed import FixedLength
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count, Seconds
from orchestrator.workloads.tokens import Stream, draw_tokens, generator


class BurstBehindGiant(WorkloadKind):
    """``rounds`` times a prompt of ``giant_len`` tokens, and ``gap_s`` later ``shorts`` short requests together.

    It shows what a chunk size costs the others: the p99 TTFT is that of the short requests. Round r begins at
    ``r * round_s``; the arrival kind ``trace_time`` keeps these times, any other keeps the order alone.
    """

    kind: Literal["burst_behind_giant"] = "burst_behind_giant"
    giant_len: Count = 65_536
    shorts: Count = 16
    short_len: Length = FixedLength(tokens=256)
    output_len: Length = FixedLength(tokens=8)
    gap_s: Seconds = 0.05
    rounds: Count = 1
    round_s: Seconds = 0.0

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        lengths, tokens = generator(seed, Stream.LENGTHS), generator(seed, Stream.TOKENS)
        requests = []
        for number in range(self.rounds):
            begin = number * self.round_s
            inputs = [self.giant_len, *self.short_len.draw(self.shorts, lengths)]
            times = [begin] + [begin + self.gap_s] * self.shorts
            outputs = self.output_len.draw(len(inputs), lengths)
            for count, output, at_s in zip(inputs, outputs, times, strict=True):
                prompt = Prompt(token_ids=draw_tokens(tokens, count, vocab_size), output_len=output)
                requests.append(Request(prompt=prompt, at_s=at_s))
        return requests

    def longest_input(self) -> int | None:
        return max(self.giant_len, self.short_len.longest)

    def longest_output(self) -> int | None:
        return self.output_len.longest
