"""Knobs of the workload and the load: both sides of a pair run under the point's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.analysis import best
from orchestrator.engines.faulty import FaultyEngines
from orchestrator.sweep import SweepSpec
from orchestrator.sweep.bench.targets import EngineTarget
from tests.sweep.studies import make_spec, new_run, points, read, require_whole, run_sweep


def load_spec(**changes: Any) -> SweepSpec:
    knobs = {
        "space__load.concurrency": {"scope": "load", "values": [1, 2]},
        "space__workload.input_len": {"scope": "load", "values": [1536, 2048]},
        "space__max_num_batched_tokens": {"scope": "live", "values": [512]},
        "trials": 10,
        "confirm": {"points": 2, "pairs": 3},
    }
    return make_spec(**{**knobs, **changes})


def test_both_sides_of_a_pair_are_served_under_the_points_load(tmp_path: Path) -> None:
    spec = load_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    require_whole(run, spec)
    found = points(run)
    assert {(point["load.concurrency"], point["workload.input_len"]) for point in found.values()} == {
        (load, length) for load in (1, 2) for length in (1536, 2048)
    }
    lengths = {(row["trial"], row["phase"], row["block"]): row["prompt_tokens"] for row in read(run, "requests")}
    for block in read(run, "blocks"):
        if block["phase"] == "accuracy":
            continue
        point, own = found[block["trial"]], json.loads(block["point"])
        assert json.loads(block["load"]) == {"kind": "closed_loop", "concurrency": point["load.concurrency"]}
        assert lengths[block["trial"], block["phase"], block["block"]] == point["workload.input_len"]
        if block["role"] == "candidate":
            assert own == point
        else:
            # The baseline, at the same load.
            load = {name: value for name, value in point.items() if "." in name}
            assert own == {"mla_workspace_rows": None, "max_num_batched_tokens": None, **load}


def test_prompts_of_a_pair_are_shared_and_those_of_two_trials_are_not(tmp_path: Path) -> None:
    spec = load_spec(trials=4, confirm={"points": 0})
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    counted = [row for row in read(run, "blocks") if not row["dropped"]]
    seeds: dict[int, set[tuple[int, int]]] = {}
    for row in counted:
        seeds.setdefault(row["prompts_seed"], set()).add((row["trial"], row["pair"]))
    assert all(len(places) == 1 for places in seeds.values())
    assert len(counted) == 2 * len(seeds)


def test_the_answer_names_the_best_at_each_load(tmp_path: Path) -> None:
    spec = load_spec(trials=24)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.002))
    answer = best(run.path)
    assert answer.decision == "winner"
    assert len(answer.by_load) == 4
    # The faulty engine is fastest at 1024 rows, whatever the load.
    assert {one.point["mla_workspace_rows"] for one in answer.by_load} == {1024}
    assert answer.importance is not None
    assert next(iter(answer.importance)) == "mla_workspace_rows"


def test_a_bench_of_the_spec_runs_at_its_own_load() -> None:
    with EngineTarget(load_spec(), FaultyEngines()) as target:
        assert target.point == {"mla_workspace_rows": None, "max_num_batched_tokens": None}
