"""One way to compile a loop with numba: typed for mypy, cached on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba  # type: ignore[import-untyped]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*signatures: str) -> Callable[[F], F]:
    """Compile a function for the given signatures when it is defined.

    The machine code is kept beside the module or in numba's user cache, so that later processes load it. Where neither
    place can be written, the function is compiled again in every process.
    """

    def decorate(function: F) -> F:
        try:
            return cast(F, numba.njit(list(signatures), cache=True)(function))
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
            return cast(F, numba.njit(list(signatures))(function))

    return decorate
