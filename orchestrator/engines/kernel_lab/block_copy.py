"""Copies of many small blocks from random places, on one core.

A block in a new place is a new stream to the processor's prefetcher, which needs some lines before it runs ahead:
copying blocks of 2 KB one after the other reaches little more than half of what a long copy does. So the lines of a
later block are asked for while the present one is copied.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from orchestrator.planning.jit import compiled

LINE: Final = 64
"""Bytes of a cache line."""

LARGEST: Final = 16_384
"""Bytes of a block; larger ones are long enough for the prefetcher."""

_AHEAD: Final = 4
"""Blocks between the one that is copied and the one that is asked for."""


def can_copy(blocks: torch.Tensor) -> bool:
    """Whether :func:`copy_blocks` is of use: blocks are small, of whole lines, and one thread copies them."""
    size = blocks.shape[1] * blocks.element_size()
    is_small = LINE <= size <= LARGEST and size % LINE == 0
    return bool(is_small and blocks.device.type == "cpu" and torch.get_num_threads() == 1)


def copy_blocks(blocks: torch.Tensor, ids: torch.Tensor, out: torch.Tensor) -> None:
    """Copy ``blocks[ids]`` to ``out``, bit by bit.

    Args:
        blocks: ``[blocks, width]``, contiguous, on the CPU; a block is a multiple of ``LINE`` bytes.
        ids: ``int64``, ``[count]``.
        out: ``[count, width]``, contiguous, of the same dtype.

    Raises:
        IndexError: An id is no block.
        ValueError: Shapes, dtypes or layouts differ from these.
    """
    size = blocks.shape[1] * blocks.element_size()
    fits = out.shape == (ids.shape[0], blocks.shape[1]) and out.dtype == blocks.dtype and ids.dtype == torch.int64
    if not (fits and size % LINE == 0 and all(one.is_contiguous() for one in (blocks, ids, out))):
        raise ValueError(f"cannot copy blocks of {tuple(blocks.shape)} to {tuple(out.shape)}")
    if not _copy(blocks.data_ptr(), blocks.shape[0], ids.numpy(), out.data_ptr(), size):
        raise IndexError(f"a block id is not in 0 to {blocks.shape[0] - 1}")


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_: Any, address: Any) -> Any:  # noqa: ARG001 (its name and number make the signature)
    """Ask for the line at an address, to be read once or more."""

    def emit(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        # Read, keep in all caches, data.
        builder.call(function, [builder.inttoptr(arguments[0], pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.intp), emit


@intrinsic  # type: ignore[untyped-decorator]
def _copy_line(_: Any, target: Any, source: Any) -> Any:  # noqa: ARG001 (as above)
    """Copy ``LINE`` bytes between addresses of any alignment."""

    def emit(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        line = ir.VectorType(ir.IntType(8), LINE).as_pointer()
        read = builder.load(builder.inttoptr(arguments[1], line))
        written = builder.store(read, builder.inttoptr(arguments[0], line))
        read.align = written.align = 1
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


@compiled("boolean(intp, intp, int64[::1], intp, intp)")
def _copy(source: int, blocks: int, ids: np.ndarray[Any, Any], target: int, size: int) -> bool:
    count = len(ids)
    for number in range(count):
        if ids[number] < 0 or ids[number] >= blocks:
            return False
    for number in range(count):
        later = source + ids[min(number + _AHEAD, count - 1)] * size
        read, write = source + ids[number] * size, target + number * size
        for at in range(0, size, LINE):
            _prefetch(later + at)
            _copy_line(write + at, read + at)
    return True
