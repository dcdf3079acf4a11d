"""The rungs of a ladder, and how many points they can see at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Fidelity = Literal["planning", "simulator", "lab", "short", "full"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)
"""From cheap to dear: planning arithmetic (microseconds), a simulator on measured tables, the kernel lab, short blocks
of the engine, its full blocks."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way to measure a point.

    Attributes:
        name: What it is called.
        cost: What one point takes there, in any unit, at least 0; a bound on the whole is made of it.
        most: Points that may climb to it at most, at least 1; None for no bound beside the ladder's own.
    """

    name: str
    cost: float = 0.0
    most: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and self.cost >= 0):
            raise ValueError(f"cost must be a number from 0 up, got {self.cost}")
        if self.most is not None and self.most < 1:
            raise ValueError(f"most must be at least 1, got {self.most}")


def passed_on(entered: int, eta: float, above: Rung) -> int:
    """How many of the points that entered a rung may climb to the one above: one in ``eta``, rounded up."""
    kept = math.ceil(entered / eta)
    return kept if above.most is None else min(kept, above.most)


def most_entrants(points: int, rungs: Sequence[Rung], eta: float) -> list[int]:
    """How many points each rung sees at most, when every point that may climb does.

    Args:
        points: Points that enter the lowest rung, at least 0.
        rungs: From cheap to dear.
        eta: One in so many climbs, above 1.
    """
    counts = [points]
    for above in rungs[1:]:
        counts.append(passed_on(counts[-1], eta, above))
    return counts


def most_cost(points: int, rungs: Sequence[Rung], eta: float) -> float:
    """What all rungs take together at most, in the unit of their costs. Arguments as for :func:`most_entrants`."""
    return sum(seen * rung.cost for seen, rung in zip(most_entrants(points, rungs, eta), rungs, strict=True))
