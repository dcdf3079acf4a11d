"""Compiled loops on the threads that torch has already: a second set of threads would fight with them for the cores."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

_OPENMP: Final = "libgomp.so.1"
"""The library that torch's own loops run on."""


class Loop:
    """A compiled function that takes the address of its arguments and does shares of the work until none is left.

    Args:
        callback: A numba ``cfunc`` of the signature ``void(CPointer(int64))``. Its first argument is the address of a
            counter, see :func:`next_share`.
    """

    def __init__(self, callback: Any) -> None:
        self._callback = callback

    def run(self, *arguments: int) -> None:
        """Do all the work, on as many threads as torch would use. Returns when it is done."""
        counter = np.zeros(1, np.int64)
        given = np.array([counter.ctypes.data, *arguments], np.int64)
        threads = torch.get_num_threads()
        team = None if threads == 1 else _team()
        if team is None:
            self._callback.ctypes(given.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)))
        else:
            team(self._callback.address, given.ctypes.data, threads, 0)


@cache
def _team() -> Any:
    """``GOMP_parallel``, with which compilers start a parallel region; None if torch runs on another library."""
    try:
        function = ctypes.CDLL(_OPENMP, mode=os.RTLD_NOLOAD).GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


@intrinsic  # type: ignore[untyped-decorator]
def next_share(_: Any, counter: Any, size: Any) -> Any:  # noqa: ARG001 (their names and number make the signature)
    """Where the caller's next share begins, a different one for each thread."""

    def emit(context: Any, builder: Any, __: Any, arguments: Any) -> Any:  # noqa: ARG001
        address = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", address, arguments[1], "monotonic")

    return types.int64(types.intp, types.int64), emit


def _pointer_to(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(_: Any, address: Any) -> Any:  # noqa: ARG001
        result = types.CPointer(kind)

        def emit(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(result))

        return result(types.intp), emit

    return pointer


pointer_to_uint16: Final = _pointer_to(types.uint16)
pointer_to_int64: Final = _pointer_to(types.int64)
pointer_to_float32: Final = _pointer_to(types.float32)
