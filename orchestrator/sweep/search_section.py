"""The parts of a sweep spec that say how points are chosen and when that ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import UserError
from orchestrator.measurement import GOODPUT_AT_SLO

if TYPE_CHECKING:
    from orchestrator.sweep.spec import SweepSpec

Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SamplerSection(_Section):
    """Who proposes points.

    Attributes:
        kind: ``portfolio`` is Chunksmith's own, the others are Optuna's TPE, Gaussian process and NSGA-II, and chance.
        startup: Trials before a model has its say; of ``nsga2`` the size of a population.
    """

    kind: Literal["portfolio", "tpe", "gp", "nsga2", "random"] = "portfolio"
    startup: Annotated[int, Field(ge=2)] = 8


class StopSection(_Section):
    """When a search ends before its last trial.

    Attributes:
        expected_gain: Share of the best ratio; less than this is not worth a trial.
        after: Trials in a row of which no more than that was expected when they were proposed.
    """

    expected_gain: Annotated[float, Field(gt=0, lt=1)]
    after: Count = 5


def check_search(path: Path, spec: SweepSpec) -> None:
    """Raise UserError where the sections contradict each other."""
    if spec.stop is not None and spec.sampler.kind != "portfolio":
        raise UserError(
            f"{path}: stop: needs sampler.kind portfolio, whose model says what gain can be expected; "
            f"got {spec.sampler.kind}"
        )
    metrics = [one.metric for one in spec.objectives]
    if not metrics:
        return
    if spec.stop is not None:
        raise UserError(f"{path}: stop: is for one objective, got {len(metrics)}")
    if spec.objective != spec.objectives[0]:
        raise UserError(f"{path}: objective: give either objective or objectives")
    if len(metrics) < 2 or len(set(metrics)) < len(metrics):
        raise UserError(f"{path}: objectives: two or more different metrics are needed, got {', '.join(metrics)}")
    if GOODPUT_AT_SLO in metrics:
        raise UserError(f"{path}: objectives: {GOODPUT_AT_SLO} sets the load and cannot stand beside another metric")
