"""The rung ``planning``: what arithmetic says of every point of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.engines.kernel_lab import LabArgs
from orchestrator.engines.planning_cost import NOMINAL, PlannedBlock, PlanningCost, Roofs
from orchestrator.measurement import GOODPUT_AT_SLO, block_metrics
from orchestrator.search import Point
from orchestrator.sweep.lab_twin import NoTwinError, twin_args
from orchestrator.sweep.measure import Bench
from orchestrator.sweep.serving import seed_of
from orchestrator.sweep.spec import SweepSpec

_VOCABULARY = 1_000
"""Token ids of the prompts whose lengths are drawn; they mean nothing here."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A prediction for a point, in the metric of the objective.

    Attributes:
        value: None where arithmetic rules the point out.
        refusal: Why it does.
        workspace_bytes: Of the buffers that the point reserves.
    """

    point: Point
    baseline_value: float
    value: float | None = None
    refusal: str | None = None
    workspace_rows: int = 0
    workspace_bytes: int = 0

    def columns(self) -> dict[str, float | None]:
        """What of it stands in the trials table."""
        if self.value is None:
            return {}
        return {
            "ratio": self.value / self.baseline_value,
            "baseline_value": self.baseline_value,
            "candidate_value": self.value,
            "workspace_rows": self.workspace_rows,
            "workspace_bytes": self.workspace_bytes,
        }


def why_not_planned(spec: SweepSpec) -> str | None:
    """Why arithmetic cannot rank the points of a study; None when it can."""
    metric = spec.objective.metric
    if metric == GOODPUT_AT_SLO or metric.startswith("request_goodput"):
        return f"arithmetic has no figure for {metric}"
    try:
        _cost(spec, spec.baseline_point(), NOMINAL)
    except (NoTwinError, ValueError) as error:
        return str(error)
    return None


def plan_points(spec: SweepSpec, points: Sequence[Point], bench: Bench) -> list[Planned]:
    """Predictions for some points, all for the same requests.

    The kernel lab measures the roofs of its device when it starts, so there the baseline's engine is started for them;
    with another engine the figures are good for ranking alone.
    """
    baseline = spec.baseline_point()
    seed = [seed_of(spec.seed, "planning")]
    requests = spec.block_workload(baseline).draw(seed, vocab_size=_VOCABULARY)
    schedule = spec.block_load(baseline).schedule(requests, seed)
    roofs = Roofs.of_resolved(bench.engine(bench.group_of(baseline)).info.resolved) if spec.is_lab else NOMINAL

    reference = _value(spec, _cost(spec, baseline, roofs).predict(requests, schedule))
    found = []
    for point in points:
        try:
            cost = _cost(spec, point, roofs)
            value = _value(spec, cost.predict(requests, schedule))
        except (NoTwinError, ValueError) as error:
            found.append(Planned(point=point, baseline_value=reference, refusal=str(error)))
            continue
        found.append(
            Planned(
                point=point,
                baseline_value=reference,
                value=value,
                workspace_rows=cost.workspace_rows,
                workspace_bytes=cost.workspace_bytes,
            )
        )
    return found


def _cost(spec: SweepSpec, point: Point, roofs: Roofs) -> PlanningCost:
    scopes = {name: section.scope for name, section in spec.space.items()}
    # A setting of the plugin has the same effect as a live value.
    group = {name: point[name] for name, scope in scopes.items() if scope == "engine" and name in LabArgs.model_fields}
    live = {name: value for name, value in point.items() if name not in group}
    return PlanningCost(twin_args(spec, group), plugin=spec.engine.plugin, live=live, roofs=roofs)


def _value(spec: SweepSpec, block: PlannedBlock) -> float:
    metrics = block_metrics(block.requests, block.duration_s, slo=None, gpus=spec.resources.gpus)
    value = metrics[spec.objective.metric]
    assert value is not None, "the spec's checks leave no metric without a value"
    return value
