"""What each step computes: a scheduler in the manner of vLLM's, without preemption.

Requests that run come first, in the order in which they were taken on, then waiting ones; each gets what is left of the
step's tokens, so that prefills are chunked. Source of the rules: ``Scheduler.schedule`` of vLLM 0.32.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engines.kernel_lab.caches import BlockTable
from orchestrator.engines.kernel_lab.content import Hashes, token_hashes


@dataclass(eq=False)
class LabRequest:
    """A request from its arrival to its end.

    Attributes:
        index: In its block.
        known: Tokens that are known: the prompt, and what was generated.
        computed: Tokens whose rows are in the caches.
        hashes: Of the known tokens, with room for all.
        tables: Its blocks, by group of caches; empty while it waits.
    """

    index: int
    prompt_len: int
    output_len: int
    hashes: Hashes
    known: int
    computed: int = 0
    tables: dict[str, BlockTable] = field(default_factory=dict)

    @classmethod
    def of(cls, index: int, tokens: Sequence[int], output_len: int) -> LabRequest:
        """A request with these prompt tokens."""
        hashes = np.zeros(len(tokens) + output_len, dtype=np.uint64)
        hashes[: len(tokens)] = token_hashes(tokens, 0)
        return cls(index, len(tokens), output_len, hashes, len(tokens))

    @property
    def total_len(self) -> int:
        """Tokens of prompt and output."""
        return self.prompt_len + self.output_len

    @property
    def is_finished(self) -> bool:
        """Whether all its output was generated."""
        return self.known >= self.total_len

    def append(self, token: int) -> None:
        """Take a generated token on."""
        self.hashes[self.known : self.known + 1] = token_hashes([token], self.known)
        self.known += 1


@dataclass(frozen=True)
class Granted:
    """What a step computes of a request: ``count`` tokens from ``start`` on."""

    request: LabRequest
    start: int
    count: int


@dataclass
class Limits:
    """Live limits of a step. ``long_prefill_token_threshold`` is the most tokens that one prefill gets in it while
    another request is there; 0 is off."""

    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int


class StepScheduler:
    """Decides step by step.

    Args:
        limits: Those in force.
        admit: Takes a request's blocks; False if there are not enough now.
    """

    def __init__(self, limits: Limits, admit: Callable[[LabRequest], bool]) -> None:
        self._limits, self._admit = limits, admit
        self._waiting: deque[LabRequest] = deque()
        self._running: list[LabRequest] = []
        self.steps = self.max_step_tokens = self.max_running_requests = self.long_prefill_cuts = 0

    def add(self, request: LabRequest) -> None:
        """Put a request at the end of those that wait."""
        self._waiting.append(request)

    def remove(self, request: LabRequest) -> None:
        """Forget a request that ended or was given up."""
        if request in self._running:
            self._running.remove(request)
        elif request in self._waiting:
            self._waiting.remove(request)

    def schedule(self) -> list[Granted]:
        """The next step; empty when there is nothing to do."""
        limits = self._limits
        budget = limits.max_num_batched_tokens
        # With nobody else to starve, a long prefill may have the whole step.
        is_alone = len(self._running) + len(self._waiting) <= 1
        threshold = 0 if is_alone else limits.long_prefill_token_threshold
        granted: list[Granted] = []
        for request in self._running:
            if budget == 0:
                break
            budget -= self._grant(request, budget, threshold, granted)
        while self._waiting and budget > 0 and len(self._running) < limits.max_num_seqs:
            if not self._admit(self._waiting[0]):
                break
            request = self._waiting.popleft()
            self._running.append(request)
            budget -= self._grant(request, budget, threshold, granted)
        if granted:
            self.steps += 1
            self.max_step_tokens = max(self.max_step_tokens, limits.max_num_batched_tokens - budget)
            self.max_running_requests = max(self.max_running_requests, len(self._running))
        return granted

    def _grant(self, request: LabRequest, budget: int, threshold: int, granted: list[Granted]) -> int:
        missing = request.known - request.computed
        count = min(missing, budget)
        if 0 < threshold < count:
            count = threshold
            self.long_prefill_cuts += 1
        granted.append(Granted(request, request.computed, count))
        return count
