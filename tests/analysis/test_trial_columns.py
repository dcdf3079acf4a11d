"""The answer by columns is the answer row by row, as plain Python gives it."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.analysis.best import choose
from orchestrator.analysis.by_load import best_by_load
from orchestrator.analysis.drift import run_drift
from orchestrator.analysis.finalists import choose_finalists, non_dominated
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.analysis.trial_columns import TrialColumns, point_key
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.stats import baseline_drift
from orchestrator.records import RunFolder, write_rows
from tests.analysis.runs import Run
from tests.records.rows import plain_row

SPACE = {
    "mla_workspace_rows": {"scope": "live", "values": [1, 2]},
    "load.rate": {"scope": "load", "values": [1, 2]},
}
OBJECTIVES = (("median_ttft_ms", "minimize"), ("request_throughput", "maximize"))

# Values that are equal although their texts differ, and such that are not.
POINTS = st.fixed_dictionaries(
    {"mla_workspace_rows": st.sampled_from([None, 1, 1.0, 2, [1], [1.0]]), "load.rate": st.sampled_from([1, 2.0, 2])}
)
RATIOS = st.sampled_from([0.5, 0.6, 0.7, 0.8])
TRIALS = st.lists(
    st.tuples(POINTS, RATIOS, RATIOS, st.sampled_from(["complete", "complete", "complete", "failed", "infeasible"])),
    max_size=14,
)


def record(folder: Path, trials: Sequence[tuple[Any, ...]], *, several: bool, count: int) -> Run:
    objectives = OBJECTIVES if several else ()
    run = Run(folder, space=SPACE, points=count, baseline={"mla_workspace_rows": 2}, objectives=objectives)
    rows = []
    for number, (point, first, second, outcome) in enumerate(trials):
        ends = {"ratio": first, "ratio_low": first, "ratio_high": first}
        listed = [
            {"metric": metric, "direction": way, **ends, "ratio": ratio}
            for (metric, way), ratio in zip(OBJECTIVES, (first, second), strict=True)
        ]
        failure = {"complete": None, "failed": "cuda-oom", "infeasible": "constraint"}[outcome]
        has_ratio = outcome == "complete"
        row = plain_row("trials", trial=number, outcome=outcome, failure=failure, point=json.dumps(point))
        row |= {"metric": "median_ttft_ms", **(ends if has_ratio else {})}
        rows.append(row | {"objectives": listed if several and has_ratio else None})
    write_rows(run.path, "trials", "all", rows[::-1])
    return run


def plain_choice(trials: Sequence[tuple[Any, ...]], spec: RunSpec, count: int) -> list[int]:
    """Row by row: sort, leave out what was seen, peel front after front."""
    complete = [(first, number) for number, (_, first, _, outcome) in enumerate(trials) if outcome == "complete"]
    seen: list[Any] = []
    losses: dict[int, tuple[float, ...]] = {}
    for _, number in sorted(complete):
        point, first, second, _ = trials[number]
        if point not in [spec.baseline_point(point), *seen]:
            seen.append(point)
            losses[number] = (first, -second)[: len(spec.objectives)]
    chosen: list[int] = []
    while losses and len(chosen) < count:
        front = sorted(plain_front(losses), key=lambda number: (losses[number], number))
        for number in front:
            del losses[number]
        left = count - len(chosen)
        if len(front) > left:
            front = [front[round(at * (len(front) - 1) / (left - 1))] for at in range(left)] if left > 1 else front[:1]
        chosen += front
    return chosen


def plain_front(losses: Mapping[int, Sequence[float]]) -> list[int]:
    return [
        number
        for number, own in losses.items()
        if not any(
            all(a <= b for a, b in zip(other, own, strict=True)) and tuple(other) != tuple(own)
            for other in losses.values()
        )
    ]


@settings(max_examples=60)
@given(trials=TRIALS, several=st.booleans(), count=st.integers(0, 5))
def test_the_same_finalists_counts_and_loads(trials: list[tuple[Any, ...]], several: bool, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = record(Path(folder) / "run", trials, several=several, count=count)
        spec = RunSpec.read(run.folder.spec)
        columns = TrialColumns.read(run.folder, spec)
        assert choose(columns, spec) == plain_choice(trials, spec, count)
        assert columns.counts["trials"] == Counter(outcome for *_, outcome in trials)
        assert sum(columns.counts["failures"].values()) == sum(outcome != "complete" for *_, outcome in trials)
        best: dict[str, tuple[float, int]] = {}
        for number, (point, ratio, _, outcome) in enumerate(trials):
            # As JSON writes them, 2 and 2.0 are two loads.
            load = json.dumps(point["load.rate"])
            if outcome == "complete" and (load not in best or ratio < best[load][0]):
                best[load] = (ratio, number)
        found = best_by_load(columns, spec.load_knobs, minimize=True)
        assert [(json.dumps(one.load["load.rate"]), one.trial) for one in found] == [
            (load, number) for load, (_, number) in best.items()
        ]


@given(losses=st.dictionaries(st.integers(0, 99), st.tuples(*[st.integers(0, 4)] * 3), max_size=25))
def test_fronts_of_three_objectives(losses: dict[int, tuple[int, int, int]]) -> None:
    assert non_dominated(losses) == plain_front(losses)
    two = {number: own[:2] for number, own in losses.items()}
    assert non_dominated(two) == plain_front(two)
    ways = ["minimize"] * 3
    assert sorted(choose_finalists(losses, ways, len(losses))) == sorted(losses)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0, "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(first=VALUES, second=VALUES)
def test_keys_are_equal_exactly_where_values_are(first: Any, second: Any) -> None:
    assert (point_key(first) == point_key(second)) == (first == second)


@settings(max_examples=30)
@example(blocks=[(engine, "x", 1.0 + place / 8) for engine in "ab" for place in (0, 3, 1, 2, 5, 4)])
@given(blocks=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.floats(1, 9)), max_size=24))
def test_the_same_drift(blocks: list[tuple[str, str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")
        start = plain_row("blocks")["started_at"]
        rows = [
            plain_row("blocks", engine_id=engine, point=point, role="baseline", median_ttft_ms=value, block=place)
            | {"started_at": start.replace(minute=place)}
            for place, (engine, point, value) in enumerate(blocks)
        ]
        write_rows(run.path, "blocks", "all", rows[::-1])
        found = run_drift(run, "median_ttft_ms")
        groups = {
            key: [row for row in rows if (row["engine_id"], row["point"]) == key]
            for key in itertools.product("ab", "xy")
        }
        most = max(
            (group for group in groups.values() if group),
            key=lambda group: (len(group), -group[0]["block"]),
            default=[],
        )
        if len(most) < 6:
            assert found is None
            return
        expected = baseline_drift(
            [row["median_ttft_ms"] for row in most], [row["started_at"].timestamp() for row in most]
        )
        assert found is not None
        assert (found.engine_id, found.blocks) == (most[0]["engine_id"], len(most))
        assert (found.change, found.low, found.high) == pytest.approx((expected.change, expected.low, expected.high))


def test_a_trial_with_other_objectives_than_the_spec_is_refused(tmp_path: Path) -> None:
    run = record(
        tmp_path / "run", [({"mla_workspace_rows": 1, "load.rate": 1}, 0.5, 0.5, "complete")], several=False, count=1
    )
    spec = RunSpec.read(Run(tmp_path / "other", objectives=OBJECTIVES).folder.spec)
    with pytest.raises(ChunksmithError, match=r"trial 0 has 1 objectives, but spec\.yaml says 2"):
        TrialColumns.read(run.folder, spec)
