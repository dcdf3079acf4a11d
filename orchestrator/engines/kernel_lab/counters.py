"""What the lab counts during one block, beside the counters of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal, get_args

from orchestrator.engines.contract import BlockResult, InForce
from orchestrator.engines.kernel_lab.kernels import Kernels
from orchestrator.engines.kernel_lab.roof import Roof

Part = Literal["gather", "all-gather", "attend", "prefill"]


@dataclass(frozen=True, kw_only=True)
class LabCounters:
    """Prefill attention of one block; decode steps are not in it.

    Attributes:
        prefill_s: Seconds in the prefill attention path of all layers.
        gather_s: Of them, copying cache rows into the workspace, with exchange and reorganisation between ranks.
        all_gather_s: Of ``gather_s``, exchange between ranks, with the wait for the slowest.
        attend_s: Of them, products and softmax: up-projection, attention and the merge of partial results.
        chunks: Fillings of the workspace, over all layers.
        launches: What a GPU would launch for them: gathers, index combination, up-projection, attention, merge.
        gathered_rows: Rows that were copied into the workspace, those of all ranks.
        padded_rows: Rows that chunks spanned beyond those.
        workspace_peak_bytes: Most workspace bytes that a chunk asked for.
        workspace_reserved_bytes: Size of the workspace buffers, which never shrink.
        scratch_bytes: Buffers of the kernels beside them at the end of the block.
        gather_bytes: Bytes that gathers and reorganisation read and wrote on this rank.
        all_gather_bytes: Bytes of context rows that this rank got from the others.
        flops: Floating point operations that the layers needed: padding and masked scores are not counted.
        roof: What the device can do.
    """

    prefill_s: float = 0.0
    gather_s: float = 0.0
    all_gather_s: float = 0.0
    attend_s: float = 0.0
    chunks: int = 0
    launches: int = 0
    gathered_rows: int = 0
    padded_rows: int = 0
    workspace_peak_bytes: int = 0
    workspace_reserved_bytes: int = 0
    scratch_bytes: int = 0
    gather_bytes: int = 0
    all_gather_bytes: int = 0
    flops: int = 0
    roof: Roof

    @property
    def gather_gb_per_s(self) -> float | None:
        """Gigabytes (10^9) a second that gathers read and wrote, exchange left out; None if there was none."""
        copy_s = self.gather_s - self.all_gather_s
        return self.gather_bytes / copy_s / 1e9 if copy_s > 0 else None

    @property
    def attend_gflop_per_s(self) -> float | None:
        """Gigaflops a second of the products; None if there were none."""
        return self.flops / self.attend_s / 1e9 if self.attend_s > 0 else None

    def columns(self) -> dict[str, float | int | None]:
        """All numbers by name, in the order of a table."""
        counted = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "roof"}
        return {
            **counted,
            "gather_gb_per_s": self.gather_gb_per_s,
            "attend_gflop_per_s": self.attend_gflop_per_s,
            "roof_copy_gb_per_s": self.roof.copy_gb_per_s,
            "roof_gflop_per_s": self.roof.gflop_per_s,
        }


@dataclass(frozen=True, kw_only=True)
class LabInForce(InForce):
    """What is in force, with the lab's own live knob.

    Attributes:
        chunk_order: How prefill chunks of DeepSeek-V4 layers are formed: ``batch``, ``width``, ``optimal`` or
            ``fixed``.
    """

    chunk_order: str = "batch"


@dataclass(frozen=True, kw_only=True)
class LabBlockResult(BlockResult):
    """A block of the contract with the lab's own counters."""

    in_force: LabInForce
    lab: LabCounters


class Tally:
    """Counts while a block runs. The names are those of :class:`LabCounters` and of ``Counters``."""

    def __init__(self, kernels: Kernels) -> None:
        self._now = kernels.now
        self.reset()

    def reset(self) -> None:
        """Begin a block."""
        self.seconds: dict[Part, float] = dict.fromkeys(get_args(Part), 0.0)
        self.chunks = self.launches = 0
        self.gathered_rows = self.padded_rows = self.gather_bytes = self.all_gather_bytes = self.flops = 0
        self.context_chunks = self.workspace_entries = self.area_plans = self.area_limited = 0

    @contextmanager
    def timed(self, part: Part) -> Iterator[None]:
        """Add the time of the body to a part."""
        begin = self._now()
        try:
            yield
        finally:
            self.seconds[part] += self._now() - begin
