"""vLLM versions as tuples that compare."""

from __future__ import annotations

from functools import cache
from typing import Final

from packaging.version import InvalidVersion, Version

Release = tuple[int, int, int]

#: The newest release that these rules were read from. A later one is taken to follow them.
NEWEST_KNOWN: Final[Release] = (0, 32, 0)


@cache
def release(version: str) -> Release:
    """Parse ``"0.31.0"``; what follows the numbers, such as ``rc1`` or ``+cpu``, is dropped.

    Raises:
        ValueError: if ``version`` is no version.
    """
    try:
        number = Version(version)
    except (InvalidVersion, TypeError):
        raise ValueError(f"version must look like '0.31.0', got {version!r}") from None
    return number.major, number.minor, number.micro


def spelled(number: Release) -> str:
    """Write a release as users know it: ``0.28.0``."""
    return ".".join(map(str, number))
