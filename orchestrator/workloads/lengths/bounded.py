"""Bounds of the distributions that have a spread."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from orchestrator.workloads.lengths.base import LengthKind
from orchestrator.workloads.sections import Count


class BoundedLength(LengthKind):
    """Lengths from ``low`` to ``high``, both included."""

    low: Count
    high: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self

    @property
    def longest(self) -> int:
        return self.high
