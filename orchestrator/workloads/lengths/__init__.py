"""Distributions of request lengths, in tokens. A bare whole number stands for a fixed length."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from orchestrator.workloads.lengths.base import LengthKind
from orchestrator.workloads.lengths.fixed import FixedLength
from orchestrator.workloads.lengths.lognormal import LognormalLength
from orchestrator.workloads.lengths.uniform import UniformLength
from orchestrator.workloads.lengths.zipf import ZipfLength


def _from_number(value: Any) -> Any:
    """``input_len: 512`` is short for ``input_len: {kind: fixed, tokens: 512}``."""
    return {"kind": "fixed", "tokens": value} if isinstance(value, int) and not isinstance(value, bool) else value


Length = Annotated[
    Annotated[FixedLength | UniformLength | LognormalLength | ZipfLength, Field(discriminator="kind")],
    BeforeValidator(_from_number),
]
"""A section of a spec: one of the kinds, or a whole number."""

__all__ = ["FixedLength", "Length", "LengthKind", "LognormalLength", "UniformLength", "ZipfLength"]
