"""What rank 0 tells the other ranks of an engine. They all run the same steps; rank 0 alone schedules and samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch

from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.caches import BlockTable
from orchestrator.engines.kernel_lab.content import Hashes
from orchestrator.engines.kernel_lab.context import LATENT_GROUP
from orchestrator.engines.kernel_lab.dcp.collectives import Collective
from orchestrator.engines.kernel_lab.errors import LabError

T = TypeVar("T")


@dataclass(frozen=True)
class MemberPart:
    """A member of a step, without what no other rank needs.

    Attributes:
        blocks: Its blocks, which have the same numbers on all ranks.
        rows_per_block: Of a rank's cache.
        seq_len: Tokens with those of this step.
        new_hashes: Of the tokens of this step.
    """

    blocks: list[int]
    rows_per_block: int
    seq_len: int
    new_hashes: Hashes

    @classmethod
    def of(cls, member: Member) -> MemberPart:
        """The part of a member."""
        table = member.tables[LATENT_GROUP]
        return cls(table.blocks, table.rows_per_block, member.seq_len, member.new_hashes)

    def member(self, first: int, device: torch.device) -> Member:
        """The member again; its older hashes are 0."""
        count = self.new_hashes.size
        hashes = np.zeros(self.seq_len, dtype=np.uint64)
        hashes[self.seq_len - count :] = self.new_hashes
        table = BlockTable(self.blocks, self.rows_per_block, device)
        return Member({LATENT_GROUP: table}, hashes, self.seq_len, count, first)


@dataclass(frozen=True)
class Step:
    """Compute a step."""

    prefills: list[MemberPart]
    decodes: list[MemberPart]

    @classmethod
    def of(cls, prefills: Batch, decodes: Batch) -> Step:
        """The step with these batches."""
        return cls(*([MemberPart.of(member) for member in batch.members] for batch in (prefills, decodes)))

    def batches(self, device: torch.device) -> tuple[Batch, Batch]:
        """Its prefills and decodes."""
        return _batch(self.prefills, device), _batch(self.decodes, device)


@dataclass(frozen=True)
class Resize:
    """Give the context workspace the rows of another cap; None for vLLM's own."""

    cap: int | None
    max_num_seqs: int


@dataclass(frozen=True)
class EndBlock:
    """Look at the canaries."""


Command = Step | Resize | EndBlock


class Peers(Protocol):
    """The other ranks, as rank 0 sees them. Processes, threads, or actors on other machines."""

    @property
    def collective(self) -> Collective:
        """Rank 0's end of the group."""
        ...

    def post(self, command: Command) -> None:
        """Tell all of them; does not wait.

        Raises:
            LabError: ``rank-lost``.
        """
        ...

    def collect(self) -> None:
        """Wait until all have answered what was posted last; before the first command, until all are ready.

        Raises:
            LabError: What one of them answered, after all have; or ``rank-lost``.
        """
        ...

    def lost(self, error: LabError) -> LabError:
        """Which rank is to blame for an exchange that failed, and why; ``error`` itself if none says so."""
        ...

    def close(self) -> None:
        """End them at once; an exchange that waits for them fails. From any thread, and again."""
        ...


def together(peers: Peers, command: Command, own: Callable[[], T]) -> T:
    """Have all ranks do their part, this one by calling ``own``.

    Raises:
        LabError: Of any rank.
    """
    try:
        peers.post(command)
        result = own()
        peers.collect()
    except LabError as error:
        if error.label != "rank-lost":
            raise
        raise peers.lost(error) from error
    return result


def _batch(parts: Sequence[MemberPart], device: torch.device) -> Batch:
    members, first = [], 0
    for part in parts:
        members.append(part.member(first, device))
        first += part.new_hashes.size
    return Batch(members, device)
