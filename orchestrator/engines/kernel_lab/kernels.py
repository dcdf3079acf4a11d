"""The one seam between the lab's layers and the code that does their heavy work.

Every layer calls its kernels through this interface. Plain torch runs on any device and is the reference; kernels for a
GPU are in ``triton_kernels`` and are chosen in :func:`kernels_for`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from typing import Protocol

import torch

from orchestrator.engines.kernel_lab import attention, sparse
from orchestrator.engines.kernel_lab.attention import Partial
from orchestrator.engines.kernel_lab.caches import PagedCache
from orchestrator.engines.kernel_lab.gather import Piece, gather
from orchestrator.engines.kernel_lab.sparse import SparseCall
from orchestrator.engines.kernel_lab.workspace import Scratch


class Kernels(Protocol):
    """What a layer needs. All tensors lie on one device."""

    @property
    def name(self) -> str:
        """Which implementation this is."""
        ...

    @property
    def scratch(self) -> Scratch:
        """Buffers that the kernels keep."""
        ...

    def now(self) -> float:
        """Seconds on the clock of all timestamps, when everything that was launched has ended."""
        ...

    def gather(self, cache: PagedCache, pieces: Sequence[Piece], out: torch.Tensor) -> None:
        """See :func:`orchestrator.engines.kernel_lab.gather.gather`."""
        ...

    def attend(
        self,
        queries: torch.Tensor,
        keys_t: torch.Tensor,
        values: torch.Tensor,
        length: int,
        *,
        causal: bool = False,
        hidden: torch.Tensor | None = None,
        into: Partial | None = None,
    ) -> Partial:
        """See :func:`orchestrator.engines.kernel_lab.attention.attend`."""
        ...

    def sparse_attention(self, call: SparseCall) -> None:
        """See :func:`orchestrator.engines.kernel_lab.sparse.sparse_attention`."""
        ...


class TorchKernels:
    """Plain torch, written for the caches of a CPU core."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self.scratch = Scratch(device)
        self._is_cuda = device.type == "cuda"

    def now(self) -> float:
        if self._is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def gather(self, cache: PagedCache, pieces: Sequence[Piece], out: torch.Tensor) -> None:
        gather(cache, pieces, out, self.scratch)

    def attend(
        self,
        queries: torch.Tensor,
        keys_t: torch.Tensor,
        values: torch.Tensor,
        length: int,
        *,
        causal: bool = False,
        hidden: torch.Tensor | None = None,
        into: Partial | None = None,
    ) -> Partial:
        return attention.attend(
            queries, keys_t, values, length, scratch=self.scratch, causal=causal, hidden=hidden, into=into
        )

    def sparse_attention(self, call: SparseCall) -> None:
        sparse.sparse_attention(call, self.scratch)


def kernels_for(device: torch.device) -> Kernels:
    """The kernels of a device: Triton's on a GPU where Triton is installed, else plain torch."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        # Its module compiles for a GPU and cannot be imported without Triton.
        from orchestrator.engines.kernel_lab.triton_kernels import TritonKernels

        return TritonKernels(device)
    return TorchKernels(device)
