"""How ranks exchange tensors: torch.distributed between processes, or plain copies between the threads of one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

import torch
import torch.distributed as dist

from orchestrator.engines.kernel_lab.errors import LabError, require_shape

COLLECTIVE_TIMEOUT_S: Final = 60.0
"""How long a rank waits for the others in one exchange."""


class Address(NamedTuple):
    """Where the ranks of a group find each other."""

    host: str
    port: int


class Collective(Protocol):
    """One rank's end of its group."""

    @property
    def rank(self) -> int:
        """From 0."""
        ...

    @property
    def ranks(self) -> int:
        """Of the group."""
        ...

    def all_gather(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        """Put every rank's tensor into ``out`` on every rank.

        Args:
            out: ``[ranks, *shape]``, contiguous.
            mine: ``[*shape]``, contiguous, of the same dtype; the shape is the same on all ranks.

        Raises:
            LabError: ``rank-lost`` when another rank is gone or does not come in time; ``lab-shape``.
        """
        ...

    def close(self) -> None:
        """Leave the group: exchanges in which others wait for this rank fail at once, and later ones here too."""
        ...


class TorchCollective:
    """A rank of a process group of its own. It is no default group, so that one process may have several.

    Args:
        store: Where the ranks meet; each rank has its own connection to the same one.
        device: Of this rank: a CPU takes gloo, a GPU that no other rank has takes NCCL.
        host: Address at which the others reach this rank. It tells gloo the network to use; by itself gloo takes what
            the host's name stands for, which on many machines nobody else can reach.

    Raises:
        LabError: ``rank-lost`` when not all ranks come.
    """

    def __init__(
        self,
        store: dist.TCPStore,
        rank: int,
        ranks: int,
        device: torch.device,
        *,
        host: str,
        timeout_s: float = COLLECTIVE_TIMEOUT_S,
    ) -> None:
        self.rank, self.ranks = rank, ranks
        self._store = store
        self._group: dist.ProcessGroup | None
        try:
            self._group = _process_group(store, rank, ranks, device, host, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise _lost(error) from error

    def all_gather(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        require_shape("out", tuple(out.shape), (self.ranks, *mine.shape))
        if mine.numel() == 0:
            return
        if self._group is None:
            raise LabError("rank-lost", "this rank has left its group")
        # Bytes: gloo does not know every dtype.
        into, given = out.view(-1).view(torch.uint8), mine.view(-1).view(torch.uint8)
        try:
            self._group._allgather_base(into, given).wait()
        except RuntimeError as error:
            raise _lost(error) from error

    def close(self) -> None:
        # Connections end with the object; gloo's own `abort` and `shutdown` leave them open.
        self._group = None


def _process_group(
    store: dist.TCPStore, rank: int, ranks: int, device: torch.device, host: str, timeout: timedelta
) -> dist.ProcessGroup:
    # NCCL wants a GPU for each rank. Ranks that share one take gloo, which copies through the memory of the host.
    if device.type == "cuda" and _have_own_gpus(store, rank, ranks, device):
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, ranks, options)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, ranks, options)


def _have_own_gpus(store: dist.TCPStore, rank: int, ranks: int, device: torch.device) -> bool:
    """Whether no two ranks are on one GPU. Told by its UUID: a process may see some GPUs only, under other numbers."""
    store.set(f"gpu-{rank}", str(torch.cuda.get_device_properties(device).uuid))
    return len({store.get(f"gpu-{one}") for one in range(ranks)}) == ranks


def open_store(address: Address, ranks: int, *, is_host: bool, timeout_s: float) -> dist.TCPStore:
    """A connection to the store of a group; its host opens it, at port 0 on a free one, and on this address alone.

    Raises:
        LabError: ``rank-lost`` when the host cannot be reached.
    """
    timeout = timedelta(seconds=timeout_s)
    try:
        if not is_host:
            return dist.TCPStore(address.host, address.port, ranks, timeout=timeout, wait_for_workers=False)
        # By itself the store listens on every address of the machine. A socket that it is given becomes its own.
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = socket.create_server((address.host, address.port), family=family)
        port, number = listening.getsockname()[1], listening.detach()
        return dist.TCPStore(
            address.host, port, ranks, True, timeout, wait_for_workers=False, master_listen_fd=number, use_libuv=True
        )
    except (RuntimeError, OSError) as error:
        raise _lost(error) from error


def _lost(error: RuntimeError | OSError) -> LabError:
    return LabError("rank-lost", f"an exchange between ranks failed: {' '.join(str(error).split())[:200]}")


class Exchange:
    """Where the ranks of one process, each on a thread of its own, lay out what they exchange.

    Args:
        ranks: How many threads take part in each exchange.
    """

    def __init__(self, ranks: int, *, timeout_s: float = COLLECTIVE_TIMEOUT_S) -> None:
        self.ranks = ranks
        self._laid_out: list[torch.Tensor | None] = [None] * ranks
        self._barrier = threading.Barrier(ranks, timeout=timeout_s)

    def swap(self, rank: int, mine: torch.Tensor, take: Callable[[list[torch.Tensor]], None]) -> None:
        """Lay ``mine`` out, have ``take`` look at those of all ranks, and wait until all have."""
        self._laid_out[rank] = mine
        try:
            self._barrier.wait()
            take([one for one in self._laid_out if one is not None])
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise LabError("rank-lost", "an exchange between ranks failed: a rank is gone or late") from error

    def abort(self) -> None:
        """Have all exchanges fail, also those that wait."""
        self._barrier.abort()


class LoopbackCollective:
    """A rank that is a thread of this process."""

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self.rank, self.ranks = rank, exchange.ranks
        self._exchange = exchange

    def all_gather(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        require_shape("out", tuple(out.shape), (self.ranks, *mine.shape))

        def take(laid_out: list[torch.Tensor]) -> None:
            for place, one in zip(out, laid_out, strict=True):
                place.copy_(one)

        self._exchange.swap(self.rank, mine, take)

    def close(self) -> None:
        self._exchange.abort()
