"""Studies with several objectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.analysis import best
from orchestrator.engines.faulty import Faults, FaultyEngines
from orchestrator.errors import UserError
from orchestrator.sweep import load_spec
from orchestrator.sweep.ledger import Ledger
from tests.sweep.studies import content, make_spec, new_run, points, read, require_whole, run_sweep

OBJECTIVES = [{"metric": "median_ttft_ms"}, {"metric": "output_throughput"}]


def test_every_objective_is_measured_told_recorded_and_confirmed(tmp_path: Path) -> None:
    spec = make_spec(objectives=OBJECTIVES, trials=12, confirm={"points": 3, "pairs": 3})
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    require_whole(run, spec)
    for row in read(run, "trials"):
        # What is known well enough of one may not be of the other: all pairs are measured.
        assert (row["pairs"], row["stop"]) == (spec.blocks.max_pairs, "all pairs")
        first, second = row["objectives"]
        assert (first["metric"], first["direction"], first["ratio"]) == ("median_ttft_ms", "minimize", row["ratio"])
        assert (second["metric"], second["direction"]) == ("output_throughput", "maximize")
        assert second["ratio_low"] < second["ratio"] < second["ratio_high"]
    answer = best(run.path)
    assert answer.decision == "pareto set"
    # The faulty engine is best in both at 1024 rows and the larger step.
    front = [one for one in answer.finalists if one.obstacle is None]
    assert {"mla_workspace_rows": 1024, "max_num_batched_tokens": 512} in [one.point for one in front]
    assert all(len(one.objectives) == 2 for one in front)
    assert {one.trial for one in answer.finalists} == set(Ledger(spec, run).finalists())


@pytest.mark.parametrize("kind", ["portfolio", "tpe", "nsga2"])
def test_a_resumed_study_goes_on_as_an_undisturbed_one(tmp_path: Path, kind: str) -> None:
    spec = make_spec(objectives=OBJECTIVES, trials=9, sampler={"kind": kind, "startup": 3}, confirm={"points": 0})
    undisturbed, run = new_run(tmp_path / "undisturbed", spec), new_run(tmp_path / "run", spec)
    run_sweep(spec, undisturbed, FaultyEngines(noise=0.0))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, FaultyEngines(Faults(run_errors={40: KeyboardInterrupt()}), noise=0.0))
    run_sweep(spec, run, FaultyEngines(noise=0.0))
    require_whole(run, spec)
    assert points(run) == points(undisturbed)


def test_the_resolved_spec_says_the_same_again(tmp_path: Path) -> None:
    spec = make_spec(objectives=OBJECTIVES)
    assert [one.metric for one in spec.all_objectives] == ["median_ttft_ms", "output_throughput"]
    assert spec.objective == spec.objectives[0]
    path = tmp_path / "spec.yaml"
    path.write_text(spec.to_yaml())
    again = load_spec(path)
    assert again.all_objectives == spec.all_objectives
    assert [one.metric for one in make_spec().all_objectives] == ["median_ttft_ms"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"objectives": OBJECTIVES[:1]}, "objectives: two or more different metrics are needed, got median_ttft_ms"),
        ({"objectives": OBJECTIVES * 2}, "objectives: two or more different metrics are needed"),
        ({"objectives": [*OBJECTIVES, {"metric": "p99_tftt_ms"}]}, "did you mean 'p99_ttft_ms'"),
        ({"objectives": OBJECTIVES, "objective": OBJECTIVES[1]}, "objective: give either objective or objectives"),
        ({"objectives": OBJECTIVES, "stop": {"expected_gain": 0.01}}, "stop: is for one objective, got 2"),
        ({"objectives": [OBJECTIVES[0], {"metric": "goodput_at_slo"}]}, "cannot stand beside another metric"),
        ({"objectives": [OBJECTIVES[0], {"metric": "request_goodput"}]}, "slo: is missing"),
        ({"sampler": {"kind": "tpe"}, "stop": {"expected_gain": 0.01}}, "stop: needs sampler.kind portfolio"),
        ({"sampler": {"kind": "bayes"}}, "sampler.kind"),
        ({"sampler": {"startup": 1}}, "sampler.startup"),
        ({"stop": {"expected_gain": 0}}, "stop.expected_gain"),
        ({"stop": {"after": 3}}, "stop.expected_gain"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(content(**changes)))
    with pytest.raises(UserError, match=says) as caught:
        load_spec(path)
    assert "\n" not in str(caught.value)
