"""One way to compile a loop with numba: typed for mypy, cached on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import numba  # type: ignore[import-untyped]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*signatures: str, fastmath: Collection[str] = ()) -> Callable[[F], F]:
    """Compile a function for the given signatures when it is defined.

    The machine code is kept beside the module or in numba's user cache, so that later processes load it. Where neither
    place can be written, the function is compiled again in every process.

    Args:
        fastmath: LLVM's flags for what may be assumed of floating-point numbers, such as ``reassoc``.
    """
    return _cached(lambda cache: numba.njit(list(signatures), cache=cache, fastmath=set(fastmath)))


def compiled_callback(signature: str) -> Callable[[F], Any]:
    """Compile a function that code outside of Python calls by its ``address``; cached like others."""
    return _cached(lambda cache: numba.cfunc(signature, cache=cache))


def _cached(decorator: Callable[[bool], Callable[[F], Any]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        try:
            return cast(F, decorator(True)(function))
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
            return cast(F, decorator(False)(function))

    return decorate
