"""The part of a sweep spec that says on which rungs points are measured before they get full blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.errors import UserError
from orchestrator.measurement import PairPlan
from orchestrator.search.fidelity import FIDELITIES, Fidelity, Rung
from orchestrator.workloads import ClosedLoop

if TYPE_CHECKING:
    from orchestrator.sweep.spec import SweepSpec

_SIZES = ("prompts", "conversations", "prompts_per_group", "shorts")
"""What a kind of workload calls the number of its requests."""

Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ShortSection(_Section):
    """What a short measurement is, on the rungs ``lab`` and ``short``.

    Attributes:
        pairs: Pairs of blocks of every point; from 2 on they also tell how noisy they are.
        warmup: Blocks in front that are dropped.
        share: Of the requests of a full block, in a closed loop; never fewer than are in flight. Requests that arrive
            by themselves are the load, which fewer of them would change, and all stay.
    """

    pairs: Count = 1
    warmup: Annotated[int, Field(ge=0)] = 0
    share: Annotated[float, Field(gt=0, le=1)] = 0.34


class FidelitySection(_Section):
    """A ladder of measurements; see ``orchestrator.search.fidelity``. Without it every point gets full blocks.

    Attributes:
        rungs: From cheap to dear, ``full`` last. A rung that cannot be climbed here is skipped and named.
        eta: One point in so many climbs to the next rung.
        slack: Share by which the ranks of two rungs may differ: what is surely worse by more does not climb.
        points: Points that enter the lowest rung at most; a random choice where the space has more.
    """

    rungs: Annotated[list[Fidelity], Field(min_length=2)]
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
    slack: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    points: Count = 1024
    short: ShortSection = ShortSection()

    @model_validator(mode="after")
    def _ordered(self) -> FidelitySection:
        places = [FIDELITIES.index(rung) for rung in self.rungs]
        if places != sorted(set(places)) or self.rungs[-1] != "full":
            raise ValueError(f"rungs must go from cheap to dear and end with full: of {', '.join(FIDELITIES)}")
        return self

    def rungs_for(self, names: Sequence[Fidelity], trials: int) -> list[Rung]:
        """The rungs of a ladder of which so many points may reach the top; their costs are in full blocks, below it."""
        short = self.short.share * (self.short.warmup + 2 * self.short.pairs)
        top = len(names) - 1
        return [
            Rung(
                name=name,
                cost=short if name in ("lab", "short") else 0.0,
                most=math.ceil(trials * self.eta ** (top - place)),
            )
            for place, name in enumerate(names)
        ]

    def entering(self, points: int, rungs: Sequence[Rung]) -> int:
        """How many of the points of a space enter the lowest rung: arithmetic can rank more than can reach the top."""
        most = self.points if rungs[0].cost == 0 or rungs[0].most is None else min(self.points, rungs[0].most)
        return min(points, most)

    def short_plan(self) -> PairPlan:
        """Pairs of a short measurement."""
        short = self.short
        return PairPlan(min_pairs=short.pairs, max_pairs=short.pairs, warmup_blocks=short.warmup)


def short_spec(spec: SweepSpec, section: FidelitySection) -> SweepSpec:
    """The same study with the requests of a short block."""
    share = section.short.share
    changes: dict[str, Any] = {}
    if isinstance(spec.load, ClosedLoop):
        for name in _SIZES:
            count = getattr(spec.workload, name, None)
            if isinstance(count, int):
                fewer = max(round(count * share), min(spec.load.concurrency, count))
                changes["workload"] = spec.workload.model_copy(update={name: fewer})
    if spec.rate_search is not None:
        requests = max(1, round(spec.rate_search.requests * share))
        changes["rate_search"] = spec.rate_search.model_copy(update={"requests": requests})
    return spec.model_copy(update=changes)


def check_fidelity(path: Path, spec: SweepSpec) -> None:
    """Raise UserError where a ladder does not go with the rest of a spec."""
    if spec.fidelity is None:
        return
    if spec.objectives:
        raise UserError(f"{path}: fidelity: points climb by one objective; objectives has {len(spec.objectives)}")
    if spec.stop is not None:
        raise UserError(f"{path}: fidelity: the ladder says how many points get a trial: leave stop out")
