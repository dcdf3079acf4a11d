"""What every kind of workload can do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Section


class WorkloadKind(Section):
    """The requests of a block, drawn from a seed."""

    @abstractmethod
    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        """The requests of one block, in the order of their indices; at least one.

        Args:
            seed: Whole numbers, 0 or more, that name the block. Other numbers give other prompts, which no prefix cache
                can have seen; what is shared inside a block stays shared.
            vocab_size: Token ids are below this.

        Raises:
            UserError: A file that the workload names cannot be read or used; one line.
            ValueError: The vocabulary has no ordinary token.
        """

    @abstractmethod
    def longest_input(self) -> int | None:
        """Tokens that no prompt exceeds; None where only a file can tell."""

    @abstractmethod
    def longest_output(self) -> int | None:
        """Tokens that no answer exceeds; None where only a file can tell."""

    def longest_request(self) -> int | None:
        """Tokens of input and output that no request exceeds; None where only a file can tell."""
        longest = (self.longest_input(), self.longest_output())
        return None if longest[0] is None or longest[1] is None else longest[0] + longest[1]
