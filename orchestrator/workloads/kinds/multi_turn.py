"""Conversations: each turn sends everything before it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.lengths import Length
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count, Seconds
from orchestrator.workloads.tokens import Stream, draw_tokens, generator


class MultiTurn(WorkloadKind):
    """``conversations``, each with a number of ``turns`` (a distribution, in turns).

    In the history the answers are drawn tokens of the asked length, not what the server said: so both engines of a
    comparison get the same prompts. A prefix cache can therefore serve a turn up to the end of the last question, and
    not its answer.

    Attributes:
        shared_len: Tokens at the front that all conversations have in common; 0 for none.
        first_len: Tokens of the first question.
        next_len: Tokens of every later question.
        think_s: Seconds between an answer's end and the next question.
    """

    kind: Literal["multi_turn"] = "multi_turn"
    conversations: Count
    turns: Length
    shared_len: Annotated[int, Field(ge=0)] = 0
    first_len: Length
    next_len: Length
    output_len: Length
    think_s: Seconds = 0.0

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        lengths, tokens = generator(seed, Stream.LENGTHS), generator(seed, Stream.TOKENS)
        shared = draw_tokens(generator(seed, Stream.SHARED), self.shared_len, vocab_size)
        requests: list[Request] = []
        for turns in self.turns.draw(self.conversations, lengths):
            questions = self.first_len.draw(1, lengths) + self.next_len.draw(turns - 1, lengths)
            history = list(shared)
            outputs = self.output_len.draw(turns, lengths)
            for turn, (question, output) in enumerate(zip(questions, outputs, strict=True)):
                history += draw_tokens(tokens, question, vocab_size)
                requests.append(
                    Request(
                        prompt=Prompt(token_ids=list(history), output_len=output),
                        follows=len(requests) - 1 if turn else None,
                        think_s=self.think_s if turn else 0.0,
                    )
                )
                history += draw_tokens(tokens, output, vocab_size)
        return requests

    def longest_input(self) -> int | None:
        later = (self.turns.longest - 1) * (self.next_len.longest + self.output_len.longest)
        return self.shared_len + self.first_len.longest + later

    def longest_output(self) -> int | None:
        return self.output_len.longest
