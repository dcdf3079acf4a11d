"""Seconds from counts: a linear model with one coefficient each for products, copies and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.engines.planning_cost.work import Work

LAUNCH_S: Final = 4e-6
"""One launch: a quarter of the 16 us that ``orchestrator.planning.LAUNCH_ROWS`` takes for a chunk of four."""


@dataclass(frozen=True, kw_only=True)
class Roofs:
    """What a device can do at best.

    Attributes:
        gflop_per_s: Gigaflops a second of a large product, above 0.
        copy_gb_per_s: Gigabytes (10^9) a second read and written by a copy, above 0.
        launch_s: Seconds of one launch, at least 0.
        is_measured: Whether they are this device's. Otherwise a prediction is good for ranking alone.
    """

    gflop_per_s: float
    copy_gb_per_s: float
    launch_s: float = LAUNCH_S
    is_measured: bool = True

    def __post_init__(self) -> None:
        for name in ("gflop_per_s", "copy_gb_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number above 0, got {value}")
        if not (math.isfinite(self.launch_s) and self.launch_s >= 0):
            raise ValueError(f"launch_s must be a finite number from 0 up, got {self.launch_s}")

    @classmethod
    def of_resolved(cls, resolved: Mapping[str, Any]) -> Roofs:
        """The roofs that a kernel lab measured at its start, from ``EngineInfo.resolved``; ``NOMINAL`` without any."""
        roof = resolved.get("roof")
        if not isinstance(roof, Mapping):
            return NOMINAL
        return cls(gflop_per_s=roof["gflop_per_s"], copy_gb_per_s=roof["copy_gb_per_s"])

    def seconds(self, work: Work) -> float:
        """Time of so much work when nothing overlaps. Rows that a chunk only spans are reserved and cost no time."""
        return (
            work.all_flops / (self.gflop_per_s * 1e9)
            + work.moved_bytes / (self.copy_gb_per_s * 1e9)
            + work.all_launches * self.launch_s
        )


NOMINAL: Final = Roofs(gflop_per_s=400_000.0, copy_gb_per_s=4_000.0, is_measured=False)
"""About what a data-centre GPU of 2024 reaches in bf16. Only the proportion of the two matters, and only for a rank."""
