"""The workspace manager: one growable buffer a lane, out of which a step takes all its tensors at once.

The semantics are those of vLLM's ``WorkspaceManager``: a request is several tensors that live together, each on a
256-byte boundary; the buffer grows to the largest request and never shrinks; once locked, after warm-up, it must not
grow any more, because captured graphs hold its address.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import torch

from orchestrator.engines.kernel_lab.errors import LabError

ALIGNMENT: Final = 256
"""Bytes. Every tensor of a request begins on a multiple of it."""

TensorRequest = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of one tensor."""

_CANARY: Final = 0xA5
_MIB: Final = 1024 * 1024


class WorkspaceManager:
    """Hands out tensors that share one buffer a lane. What one call returns is overwritten through the next.

    Args:
        device: Where the buffers lie.
        lanes: Independent buffers, at least 1. vLLM has one for each model that runs beside another.
        guard_bytes: Canary bytes on each side of every buffer, for tests; rounded up to whole alignment steps.
    """

    def __init__(self, device: torch.device | str = "cpu", *, lanes: int = 1, guard_bytes: int = 0) -> None:
        if lanes < 1:
            raise LabError("lab-shape", f"lanes must be at least 1, got {lanes}")
        self._device = torch.device(device)
        self._guard = round_up(guard_bytes, ALIGNMENT)
        self._buffers: list[torch.Tensor | None] = [None] * lanes
        self._sizes = [0] * lanes
        self._peaks = [0] * lanes
        self._is_locked = False

    @property
    def is_locked(self) -> bool:
        """Whether growth is refused."""
        return self._is_locked

    @property
    def current_bytes(self) -> int:
        """Bytes of all buffers, without canaries."""
        return sum(self._sizes)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that requests took since :meth:`reset_peak`, summed over the lanes."""
        return sum(self._peaks)

    def reset_peak(self) -> None:
        """Count the peak anew, for instance at the beginning of a block."""
        self._peaks = [0] * len(self._peaks)

    def lock(self) -> None:
        """Refuse growth from now on."""
        self._is_locked = True

    def unlock(self) -> None:
        """Allow growth again."""
        self._is_locked = False

    def release(self) -> None:
        """Let all buffers go. They are not there again before the next request."""
        self._buffers = [None] * len(self._buffers)
        self._sizes = [0] * len(self._sizes)

    def get_simultaneous(self, *requests: TensorRequest, lane: int = 0) -> list[torch.Tensor]:
        """Tensors of these shapes and dtypes that may be used together. Their content is undefined.

        Raises:
            LabError: ``workspace-locked`` when the buffer would have to grow after :meth:`lock`; ``lab-shape`` for an
                unknown lane or a negative size; ``out-of-memory``.
        """
        if not 0 <= lane < len(self._buffers):
            raise LabError("lab-shape", f"lane must lie between 0 and {len(self._buffers) - 1}, got {lane}")
        sizes = [_bytes_of(*request) for request in requests]
        steps = [round_up(size, ALIGNMENT) for size in sizes]
        total = sum(steps)
        self._ensure(lane, total)
        self._peaks[lane] = max(self._peaks[lane], total)
        buffer = self._buffers[lane]
        assert buffer is not None
        starts = accumulate(steps[:-1], initial=self._guard)
        return [
            buffer[start : start + size].view(dtype).view(shape)
            for start, size, (shape, dtype) in zip(starts, sizes, requests, strict=True)
        ]

    def check_canaries(self) -> None:
        """Raise LabError with the class ``workspace-overrun`` if anything was written beside a buffer."""
        for lane, guard in self._guards():
            if bool((guard != _CANARY).any()):
                raise LabError("workspace-overrun", f"bytes beside the buffer of lane {lane} were overwritten")

    def _ensure(self, lane: int, needed: int) -> None:
        size = self._sizes[lane]
        if self._buffers[lane] is not None and needed <= size:
            return
        if self._is_locked:
            raise LabError(
                "workspace-locked",
                f"a request of {needed} bytes ({needed / _MIB:.2f} MiB) exceeds the locked workspace of {size} bytes "
                f"({size / _MIB:.2f} MiB)",
            )
        # The old buffer is let go first: beside the new one it might not fit.
        self._buffers[lane] = None
        self._sizes[lane] = 0
        self._buffers[lane] = self._allocate(needed)
        self._sizes[lane] = needed

    def _allocate(self, size: int) -> torch.Tensor:
        whole = size + 2 * self._guard
        try:
            raw = torch.empty(whole + ALIGNMENT, dtype=torch.uint8, device=self._device)
        except RuntimeError as error:
            first_line = str(error).partition("\n")[0]
            raise LabError("out-of-memory", f"a workspace of {size} bytes does not fit: {first_line}") from error
        # The allocator of a CPU aligns to 64 bytes only.
        shift = -raw.data_ptr() % ALIGNMENT
        buffer = raw[shift : shift + whole]
        buffer[: self._guard] = _CANARY
        buffer[self._guard + size :] = _CANARY
        return buffer

    def _guards(self) -> Iterator[tuple[int, torch.Tensor]]:
        for lane, buffer in enumerate(self._buffers):
            if buffer is not None:
                yield lane, buffer[: self._guard]
                yield lane, buffer[self._guard + self._sizes[lane] :]


class Scratch:
    """Named buffers for what a kernel needs only while it runs: each grows to its largest use and is kept.

    Memory that is asked for and given back in every call would be mapped and cleared by the kernel of the operating
    system each time.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    @property
    def current_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._buffers.values())

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of that shape in the buffer of that name, which the next call for the name overwrites."""
        size = math.prod(shape)
        buffer = self._buffers.get((name, dtype))
        if buffer is None or buffer.numel() < size:
            self._buffers.pop((name, dtype), None)
            buffer = self._buffers[name, dtype] = torch.empty(size, dtype=dtype, device=self._device)
        return buffer[:size].view(shape)


def round_up(value: int, step: int) -> int:
    """The smallest multiple of ``step`` that is at least ``value``."""
    return -(-value // step) * step


def _bytes_of(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    if any(size < 0 for size in shape):
        raise LabError("lab-shape", f"a workspace tensor must have sizes of at least 0, got {shape}")
    size: int = math.prod(shape) * dtype.itemsize
    return size
