"""What one request sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Token ids, and the number of tokens to generate (the end-of-sequence token does not end it earlier)."""

    token_ids: Sequence[int]
    output_len: int
