"""The requests of one step, as the layers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from orchestrator.engines.kernel_lab.caches import BlockTable
from orchestrator.engines.kernel_lab.content import Hashes


@dataclass(frozen=True)
class Member:
    """One request in a step.

    Attributes:
        tables: Its blocks, by group of caches.
        hashes: Of its tokens, at least ``seq_len``.
        seq_len: Tokens with those of this step.
        query_len: Tokens of this step, at least 1.
        first: Row of the step's queries that is its first.
    """

    tables: Mapping[str, BlockTable]
    hashes: Hashes
    seq_len: int
    query_len: int
    first: int

    @property
    def context_len(self) -> int:
        """Tokens of earlier steps."""
        return self.seq_len - self.query_len

    @property
    def new_hashes(self) -> Hashes:
        """Hashes of the tokens of this step."""
        return self.hashes[self.context_len : self.seq_len]


class Batch:
    """Members whose queries follow each other, without gaps."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self.members = members
        self.device = device

    @property
    def tokens(self) -> int:
        """Queries of the batch."""
        return sum(member.query_len for member in self.members)

    @cached_property
    def seq_lens(self) -> NDArray[np.int64]:
        """``[members]``."""
        return np.array([member.seq_len for member in self.members], dtype=np.int64)

    @cached_property
    def query_lens(self) -> NDArray[np.int64]:
        """``[members]``."""
        return np.array([member.query_len for member in self.members], dtype=np.int64)

    @cached_property
    def new_hashes(self) -> Hashes:
        """Hashes of all queries' tokens, ``[tokens]``."""
        return np.concatenate([member.new_hashes for member in self.members])

    @cached_property
    def positions(self) -> torch.Tensor:
        """Position of each query in its request, ``int64``, ``[tokens]``."""
        ranges = [torch.arange(member.context_len, member.seq_len) for member in self.members]
        return torch.cat(ranges).to(self.device)
