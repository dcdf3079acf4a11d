"""The device that a lab computes on, and the thread that does."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from orchestrator.engines.kernel_lab.errors import LabError


def device_named(name: str) -> torch.device:
    """The device of a name such as ``cpu`` or ``cuda:1``.

    Raises:
        LabError: ``lab-shape``: torch knows no such device, or there is none here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LabError("lab-shape", f"device must be one that torch knows, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LabError("lab-shape", f"device {name!r} is not there: torch sees no GPU")
    return device


def pin(threads: int, cores: Sequence[int] | None) -> None:
    """Give the calling thread its number of threads for one operation, and its cores; threads that it starts inherit
    them."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)


def shared_cores(cores: Sequence[int] | None, rank: int, ranks: int) -> Sequence[int] | None:
    """A rank's part of the cores that an engine is pinned to; all of them where there are fewer cores than ranks."""
    if cores is None or len(cores) < ranks:
        return cores
    return cores[rank * len(cores) // ranks : (rank + 1) * len(cores) // ranks]
