"""Which point to deploy, if any."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.analysis.accuracy import check_accuracy
from orchestrator.analysis.answer import Answer, Finalist
from orchestrator.analysis.by_load import best_by_load
from orchestrator.analysis.confirmed import Row, complete_pairs, doubt, object_of, pairs_of, ratio_of, refusal
from orchestrator.analysis.drift import RunDrift, run_drift
from orchestrator.analysis.finalists import choose_among
from orchestrator.analysis.importance import knob_importance, spread
from orchestrator.analysis.pareto import pareto_finalists
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.analysis.trial_columns import TrialColumns, point_key
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.stats import RatioInterval, select
from orchestrator.records import RunFolder, SoakRecord, read_arrow

FAMILY_LEVEL = 0.95
"""Confidence that the intervals that are shown hold at once for all confirmed points."""

DECISION_LEVEL = 0.98
"""The same for the intervals by which a winner is named: where no point is better, one is named in 1 % at most."""

_WORKSPACE = ("workspace_rows", "workspace_bytes")
_BLOCK_COLUMNS = ("trial", "pair", "role", "engine_id", "failed_requests", "point", *_WORKSPACE)
_REQUEST_COLUMNS = ("trial", "request", "role", "error", "output_token_ids", "top2_gaps")

_MEMORY = (*_WORKSPACE, "workspace_alignment", "builders", "kv_blocks")


def best(run_path: Path | str) -> Answer:
    """The answer that a run's records support.

    Only blocks of phase ``confirm`` count: those of the search chose the finalists, so the best of them looks better
    than it is. Each of the ``k`` finalists gets an interval at level ``1 - 0.05 / k`` (Bonferroni's inequality),
    so that all intervals hold at once with 95 % and picking the best afterwards costs no confidence. ``k`` counts the
    points that the search chose, not those whose confirmation gave figures: what fails must not narrow the others.
    A winner is named by wider intervals, of level ``1 - 0.02 / k``: half of what they miss lies on the better side, so
    that of 100 studies without a better point at most one names a winner.

    A point wins if its trial is complete, it is not the baseline itself, no request failed in its confirmation, its
    interval excludes 1 on the better side, it passes the accuracy guard, its latest soak (if it had one) passed, and no
    such point has a better ratio.
    Otherwise the decision is ``no clear winner``.

    With several objectives there is no winner but a Pareto set: the confirmed points that pass the same guards, are
    better than the baseline beyond doubt in some objective, and are dominated by no other such point, by their ratios.
    All intervals, one for each objective of each finalist, hold at once with 95 %.

    Args:
        run_path: Folder of the run. A sweep may still be writing to it; the answer is final after its last
            confirmation.

    Raises:
        UserError: Not a run folder, or its ``spec.yaml`` lacks or misstates a key that is needed.
        ChunksmithError: The records contradict each other, or the record of a soak cannot be read.
    """
    run = RunFolder.open(run_path)
    spec = RunSpec.read(run.spec)
    counted = (pc.field("phase") == "confirm") & ~pc.field("dropped")
    metrics = [metric for metric, _ in spec.objectives]
    blocks = _by_trial(read_arrow(run.path, "blocks", where=counted, columns=[*_BLOCK_COLUMNS, *metrics]))
    with ThreadPoolExecutor(1, "drift") as beside:
        # Of what is read only the trials are as much, and neither needs the other.
        drift = beside.submit(run_drift, run, spec.metric, is_one_load=not spec.load_knobs) if blocks else None
        return _answer(run, spec, blocks, lambda: drift.result() if drift is not None else None)


def _answer(
    run: RunFolder, spec: RunSpec, blocks: Mapping[int, Sequence[Row]], drift: Callable[[], RunDrift | None]
) -> Answer:
    """The answer, from the blocks of the confirmation by trial. ``drift`` is asked where something was confirmed."""
    trials = TrialColumns.read(run, spec)
    if missing := sorted(blocks.keys() - set(trials.recorded[np.isin(trials.recorded, [*blocks])].tolist())):
        raise ChunksmithError(f"{run.path}: trial {missing[0]} was confirmed, but trials/ does not hold it.")

    # Before the first confirmation the search may go on, and choose others.
    chosen = sorted({*choose(trials, spec), *blocks}) if blocks else []
    rows = trials.rows(chosen)
    of_chosen = (pc.field("phase") == "accuracy") & pc.field("trial").isin(pa.array(chosen, pa.int32()))
    requests = _by_trial(read_arrow(run.path, "requests", where=of_chosen, columns=_REQUEST_COLUMNS))
    level = 1 - (1 - FAMILY_LEVEL) / (len(chosen) * len(spec.objectives)) if chosen else None
    finalists: list[Finalist] = []
    if level is not None and len(spec.objectives) > 1:
        found = [rows[trial] for trial in chosen]
        strict = _strict(level)
        finalists = pareto_finalists(run, spec, found, blocks, requests, level=level, strict_level=strict)
    elif level is not None:
        finalists = [_finalist(run, rows[one], blocks.get(one, []), requests[one], spec, level) for one in chosen]
    finalists.sort(key=lambda one: (_badness(one, spec), one.trial not in blocks, one.trial))
    counts = {what: dict(numbers) for what, numbers in trials.counts.items()}
    answer = partial(
        Answer,
        study=spec.study,
        metric=spec.metric,
        direction=spec.direction,
        counts=counts,
        baseline=spec.baseline_names,
        by_load=best_by_load(trials, spec.load_knobs, minimize=spec.minimize),
        importance=_importance(trials, spec),
    )
    if not finalists:
        return answer(decision="no clear winner", reason=_why_none_confirmed(counts["trials"]))
    if len(spec.objectives) > 1:
        front = [one for one in finalists if one.obstacle is None]
        return answer(
            decision="pareto set" if front else "no clear winner",
            reason=_why_front(front) if front else _obstacles(finalists),
            level=level,
            family_level=FAMILY_LEVEL,
            finalists=tuple(finalists),
            drift=drift(),
        )
    finalists = _with_probabilities(finalists, blocks, spec)
    winner = next((finalist for finalist in finalists if finalist.obstacle is None), None)
    shown = winner or finalists[0]
    if winner:
        reason = (
            f"trial {winner.trial} has the best ratio among the confirmed points whose interval excludes 1 "
            "and that pass the accuracy guard"
        )
    else:
        reason = _obstacles(finalists)
    row = rows[shown.trial]
    return answer(
        decision="winner" if winner else "no clear winner",
        reason=reason,
        ratio=shown.ratio,
        ratio_low=shown.ratio_low,
        ratio_high=shown.ratio_high,
        level=level,
        family_level=FAMILY_LEVEL,
        pairs=shown.pairs,
        starts=shown.starts,
        trial=shown.trial,
        point=shown.point,
        memory=_memory(row, blocks.get(shown.trial, [])),
        accuracy=shown.accuracy,
        soak=shown.soak,
        serve_args=list(row["serve_args"]),
        env={name: str(value) for name, value in object_of(run, row, "env").items()},
        finalists=tuple(finalists),
        drift=drift(),
    )


def choose(trials: TrialColumns, spec: RunSpec) -> list[int]:
    """Trials that the sweep confirms, no point twice, the baseline itself left out."""
    sign = 1.0 if spec.minimize else -1.0
    if len(spec.objectives) == 1:
        return list(itertools.islice(_best_points(trials, spec, sign), spec.confirm_points))
    rows = trials.best_of_each_point(sign)
    fixed = {name: spec.baseline.get(name) for name in spec.knobs if name not in spec.load_knobs}
    like_baseline = [
        code
        for code in trials.with_values(fixed).tolist()
        if trials.points[code] == spec.baseline_point(trials.points[code])
    ]
    rows = rows[~np.isin(trials.codes[rows], like_baseline)]
    return choose_among(
        trials.numbers[rows], trials.ratios[rows], [way for _, way in spec.objectives], spec.confirm_points
    )


def _best_points(trials: TrialColumns, spec: RunSpec, sign: float) -> Iterator[int]:
    """The best trial of each point but the baseline, the best first."""
    seen: set[Hashable] = set()
    for row, point in trials.best_first(sign):
        key = point_key(point)
        if key not in seen and point != spec.baseline_point(point):
            seen.add(key)
            yield int(trials.numbers[row])


def _importance(trials: TrialColumns, spec: RunSpec) -> dict[str, float] | None:
    taken = spread(len(trials.numbers))
    return knob_importance(trials.points_of(taken), trials.ratios[taken].tolist(), [way for _, way in spec.objectives])


def _obstacles(finalists: Iterable[Finalist]) -> str:
    return "; ".join(f"trial {finalist.trial}: {finalist.obstacle}" for finalist in finalists)


def _why_front(front: Sequence[Finalist]) -> str:
    if len(front) == 1:
        return f"trial {front[0].trial} is the only confirmed point that is better than the baseline and not dominated"
    named = ", ".join(str(one.trial) for one in front)
    return f"of the trials {named} none is as good as another in every objective and better in one"


def _with_probabilities(
    finalists: Sequence[Finalist], blocks: Mapping[int, Sequence[Row]], spec: RunSpec
) -> list[Finalist]:
    """The finalists with the probability of being the best of them, from their fresh pairs."""
    ratios = {
        one.trial: ratio
        for one in finalists
        if (pairs := complete_pairs(blocks.get(one.trial, []), spec.metric)) and (ratio := ratio_of(pairs)).dof > 1
    }
    if not ratios:
        return list(finalists)
    chosen = select(list(ratios.values()), "minimize" if spec.minimize else "maximize")
    figures = dict(zip(ratios, zip(chosen.probability_best, chosen.expected_loss, strict=True), strict=True))
    return [
        replace(one, probability_best=figures[one.trial][0], expected_loss=figures[one.trial][1])
        if one.trial in figures
        else one
        for one in finalists
    ]


def _by_trial(table: pa.Table) -> defaultdict[int, list[Row]]:
    rows: defaultdict[int, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        rows[row["trial"]].append(row)
    return rows


def _finalist(
    run: RunFolder, trial: Row, blocks: Sequence[Row], requests: Sequence[Row], spec: RunSpec, level: float
) -> Finalist:
    accuracy, soak = check_accuracy(requests, spec.tolerance), SoakRecord.read(run.path, trial["trial"])
    pairs, faults = pairs_of(run, trial["trial"], blocks, spec.metric)
    interval = ratio_of(pairs, level) if pairs else None
    strict_level = _strict(level)
    decisive = ratio_of(pairs, strict_level) if pairs else None
    obstacle = doubt(run, trial, blocks, faults)
    if obstacle is not None:
        pass
    elif interval is None or decisive is None:
        obstacle = "no pair of blocks is complete"
    elif not _excludes_one(interval, spec):
        obstacle = f"its interval, {interval.low:.3f} to {interval.high:.3f}, {_where_one_lies(interval)}"
    elif not _excludes_one(decisive, spec):
        obstacle = (
            f"the interval by which a winner is named ({strict_level:.1%}), {decisive.low:.3f} to {decisive.high:.3f}, "
            f"{_where_one_lies(decisive)}"
        )
    else:
        obstacle = refusal(run, accuracy, soak)
    return Finalist(
        trial=trial["trial"],
        point=object_of(run, trial, "point"),
        ratio=interval.ratio if interval else None,
        ratio_low=interval.low if interval else None,
        ratio_high=interval.high if interval else None,
        pairs=len(pairs),
        starts=interval.starts if interval else 0,
        accuracy=accuracy,
        obstacle=obstacle,
        soak="not run" if soak is None else "passed" if soak.passed else "failed",
    )


def _strict(level: float) -> float:
    """The level of one interval by which a decision is made, from that of the one that is shown."""
    return 1 - (1 - level) * (1 - DECISION_LEVEL) / (1 - FAMILY_LEVEL)


def _excludes_one(interval: RatioInterval, spec: RunSpec) -> bool:
    return interval.high < 1 if spec.minimize else interval.low > 1


def _where_one_lies(interval: RatioInterval) -> str:
    return "includes 1" if interval.low <= 1 <= interval.high else "lies on the worse side of 1"


def _badness(finalist: Finalist, spec: RunSpec) -> float:
    if finalist.ratio is None:
        return math.inf
    return finalist.ratio if spec.minimize else -finalist.ratio


def _memory(trial: Row, blocks: Sequence[Row]) -> dict[str, Any]:
    memory: dict[str, Any] = {name: trial[name] for name in _MEMORY}
    memory["baseline"] = {}
    for name in _WORKSPACE:
        found = {block[name] for block in blocks if block["role"] == "baseline"}
        memory["baseline"][name] = found.pop() if len(found) == 1 else None
    return memory


def _why_none_confirmed(outcomes: Mapping[str, int]) -> str:
    total, complete = sum(outcomes.values()), outcomes.get("complete", 0)
    if not total:
        return "no trial is recorded yet"
    if not complete:
        return f"none of the {total} trials is complete"
    return f"{complete} of {total} trials are complete, but no point has been confirmed with fresh prompts"
