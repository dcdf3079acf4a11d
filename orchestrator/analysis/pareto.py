"""Several objectives: the confirmed points of which none is better than another in everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.analysis.accuracy import check_accuracy
from orchestrator.analysis.answer import Finalist, ObjectiveRatio
from orchestrator.analysis.confirmed import Row, doubt, object_of, pairs_of, ratio_of, refusal
from orchestrator.analysis.finalists import non_dominated
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.records import RunFolder, SoakRecord


def pareto_finalists(
    run: RunFolder,
    spec: RunSpec,
    trials: Sequence[Row],
    blocks: Mapping[int, Sequence[Row]],
    requests: Mapping[int, Sequence[Row]],
    *,
    level: float,
    strict_level: float,
) -> list[Finalist]:
    """The finalists of a study with several objectives. Those without an obstacle are the Pareto set: each is better
    than the baseline beyond doubt in some objective, and no other that may be deployed has ratios as good in every
    objective and better in one.

    Args:
        trials: Rows of the trials that were chosen.
        blocks: Of the confirmation, by trial.
        requests: Of the accuracy run, likewise.
        level: Confidence level of the interval of one objective of one point that is shown.
        strict_level: Of the one by which it is called better than the baseline.
    """
    found = []
    for row in trials:
        own = blocks.get(row["trial"], []), requests.get(row["trial"], [])
        found.append(_finalist(run, spec, row, *own, level=level, strict_level=strict_level))
    losses = {one.trial: _losses(one.objectives) for one in found if one.obstacle is None}
    front = set(non_dominated(losses))
    return [
        replace(one, obstacle=_why_dominated(one, losses)) if one.obstacle is None and one.trial not in front else one
        for one in found
    ]


def _finalist(
    run: RunFolder,
    spec: RunSpec,
    trial: Row,
    blocks: Sequence[Row],
    requests: Sequence[Row],
    *,
    level: float,
    strict_level: float,
) -> Finalist:
    ratios: list[ObjectiveRatio] = []
    faults: list[str] = []
    count, starts, is_better = 0, 0, False
    for metric, direction in spec.objectives:
        pairs, against = pairs_of(run, trial["trial"], blocks, metric)
        faults += against
        if pairs:
            shown, strict = (ratio_of(pairs, one) for one in (level, strict_level))
            count, starts = shown.pairs, shown.starts
            ratios.append(ObjectiveRatio(metric, direction, shown.ratio, shown.low, shown.high))
            is_better |= strict.high < 1 if direction == "minimize" else strict.low > 1
    accuracy, soak = check_accuracy(requests, spec.tolerance), SoakRecord.read(run.path, trial["trial"])
    obstacle = doubt(run, trial, blocks, faults)
    if obstacle is None and len(ratios) < len(spec.objectives):
        obstacle = "no pair of blocks is complete"
    if obstacle is None and not is_better:
        obstacle = f"in no objective is it better than the baseline beyond doubt ({strict_level:.1%} intervals)"
    first = ratios[0] if ratios else None
    return Finalist(
        trial=trial["trial"],
        point=object_of(run, trial, "point"),
        ratio=first.ratio if first else None,
        ratio_low=first.ratio_low if first else None,
        ratio_high=first.ratio_high if first else None,
        pairs=count,
        starts=starts,
        accuracy=accuracy,
        obstacle=obstacle or refusal(run, accuracy, soak),
        soak="not run" if soak is None else "passed" if soak.passed else "failed",
        objectives=tuple(ratios),
    )


def _losses(ratios: Sequence[ObjectiveRatio]) -> tuple[float, ...]:
    return tuple(one.ratio if one.direction == "minimize" else -one.ratio for one in ratios)


def _why_dominated(finalist: Finalist, losses: Mapping[int, Sequence[float]]) -> str:
    own = losses[finalist.trial]
    better = [number for number, other in losses.items() if non_dominated({0: other, 1: own}) == [0]]
    return f"trial {better[0]} is as good in every objective and better in one"
