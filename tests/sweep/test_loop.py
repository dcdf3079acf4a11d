from __future__ import annotations

import dataclasses
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis import best
from orchestrator.engines import EngineConfig, EngineError
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.errors import ChunksmithError
from orchestrator.sweep.slot import MAX_ATTEMPTS
from tests.sweep.studies import (
    BATCHED_TOKENS,
    ROWS,
    journal,
    make_spec,
    new_run,
    points,
    read,
    require_whole,
    run_sweep,
)

LOST = EngineError("engine-dead", "the engine is gone", lost=True, log_path="x.log")


def outcomes(run: Any) -> list[str]:
    return [row["outcome"] for row in sorted(read(run, "trials"), key=lambda row: row["trial"])]


def test_a_whole_space_is_measured_once_each_and_the_best_confirmed(tmp_path: Path) -> None:
    size = len(ROWS) * len(BATCHED_TOKENS)
    spec = make_spec(trials=size)
    run, engines, output = new_run(tmp_path / "run", spec), FaultyEngines(noise=0.005), io.StringIO()
    run_sweep(spec, run, engines, output)
    require_whole(run, spec)
    found = points(run)
    assert len({str(sorted(point.items())) for point in found.values()}) == size
    assert [engine.is_running for engine in engines.made] == [False]

    confirmed = {row["trial"] for row in read(run, "blocks") if row["phase"] == "confirm"}
    ranked = sorted((row for row in read(run, "trials")), key=lambda row: row["ratio"])
    assert confirmed == {row["trial"] for row in ranked[: spec.confirm.points]}
    assert {row["trial"] for row in read(run, "requests") if row["phase"] == "accuracy"} == confirmed
    answer = best(run.path)
    assert answer.decision == "winner"
    # The faulty engine is fastest at 1024 rows, and at the larger step since it needs fewer of them.
    assert answer.point == {"mla_workspace_rows": 1024, "max_num_batched_tokens": 512}
    # Called by their numbers in the records, and counted from 1.
    total = size + spec.confirm.points
    told = [line.split(":")[0] for line in output.getvalue().splitlines() if f" of {total}): " in line]
    assert told[:size] == [f"trial {number} ({number + 1} of {total})" for number in range(size)]
    assert {line.split(" (")[0] for line in told[size:]} == {f"confirming trial {number}" for number in confirmed}


def test_the_confirmation_has_prompts_of_its_own_and_both_roles_of_a_pair_share_theirs(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    seeds: dict[int, set[tuple[Any, ...]]] = {}
    for row in read(run, "blocks"):
        place = (
            (row["phase"],) if row["phase"] == "accuracy" else (row["phase"], row["trial"], row["pair"], row["dropped"])
        )
        seeds.setdefault(row["prompts_seed"], set()).add(place)
    assert all(len(places) == 1 for places in seeds.values())
    paired = [row for row in read(run, "blocks") if row["phase"] == "confirm" and not row["dropped"]]
    assert all(
        sum(row["prompts_seed"] == seed for row in paired) == 2 for seed in {row["prompts_seed"] for row in paired}
    )


@pytest.mark.parametrize("seed", range(8))
def test_an_engine_lost_at_some_block_is_replaced_and_nothing_stands_twice(tmp_path: Path, seed: int) -> None:
    spec = make_spec()
    position = random.Random(seed).randrange(40)
    run, engines = new_run(tmp_path / "run", spec), FaultyEngines(Faults(run_errors={position: LOST}))
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert outcomes(run) == ["complete"] * spec.trials
    assert len(engines.made) == 2
    assert sum(row["attempt"] for row in read(run, "trials")) <= 1
    assert best(run.path).decision == "winner"


@settings(max_examples=12)
@given(data=st.data())
def test_whatever_fails_where_the_study_ends_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    out_of_memory = EngineError("cuda-oom", "out of memory")
    faults = [
        Faults(
            run_errors=data.draw(
                st.dictionaries(st.integers(2, 12), st.sampled_from([LOST, out_of_memory]), max_size=2), "errors"
            ),
            failed_requests=data.draw(st.dictionaries(st.integers(2, 12), st.just([0]), max_size=1), "failed"),
            cached_tokens=data.draw(st.dictionaries(st.integers(2, 12), st.just(16), max_size=1), "cached"),
        )
        for _ in range(5)
    ]
    spec = make_spec(trials=8)
    run = new_run(tmp_path_factory.mktemp("any") / "run", spec)
    engines = FaultyEngines(*faults)
    try:
        run_sweep(spec, run, engines)
    except ChunksmithError:
        assert "complete" not in outcomes(run)
    require_whole(run, spec)
    assert not any(engine.is_running for engine in engines.made)
    failures = {row["failure"] for row in read(run, "trials") if row["outcome"] != "complete"}
    assert failures <= {"cuda-oom", "request-failed", "prefix-cache-hit", "engine-dead", "baseline-failed"}


def test_a_point_that_loses_every_engine_is_lost_and_the_sweep_goes_on(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    # Block 0 warms up; the first trial loses the engines one after the other.
    engines = FaultyEngines(*[Faults(run_errors={3: LOST})] * MAX_ATTEMPTS)
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert outcomes(run) == ["lost", *["complete"] * (spec.trials - 1)]
    row = read(run, "trials")[0]
    assert (row["failure"], row["failure_detail"], row["engine_log"]) == ("engine-dead", LOST.detail, LOST.log_path)
    assert row["attempt"] == MAX_ATTEMPTS - 1
    assert len(engines.made) == MAX_ATTEMPTS + 1


def test_a_deterministic_failure_is_not_tried_again(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(Faults(run_errors={3: EngineError("cuda-oom", "out of memory", log_path="x.log")}))
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert outcomes(run) == ["failed", *["complete"] * (spec.trials - 1)]
    assert len(engines.made) == 2


@pytest.mark.parametrize(
    ("label", "starts"),
    [
        ("engine-start", 2),
        ("gpu-memory-busy-at-start", 2),
        ("resources", 1),
        ("plugin-refused", 1),
        ("lab-shape", 1),
        ("workspace-too-small", 1),
        ("kv-cache-too-small", 1),
    ],
)
def test_a_baseline_that_does_not_start_stops_the_sweep_and_blames_no_trial(
    tmp_path: Path, label: str, starts: int
) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(*[Faults(start_error=EngineError(label, "ValueError: no", log_path="x.log"))] * starts)
    with pytest.raises(ChunksmithError) as caught:
        run_sweep(spec, run, engines)
    assert str(caught.value) == f"the baseline's engine does not start: {label}: ValueError: no (engine log: x.log)"
    assert len(engines.made) == starts
    assert read(run, "trials") == []
    # Mended, the same run goes on: the trial that was begun is measured, and nothing is missing.
    run_sweep(spec, run, FaultyEngines())
    require_whole(run, spec)
    assert outcomes(run) == ["complete"] * spec.trials


def test_a_start_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(Faults(start_error=EngineError("engine-start", "memory still held", log_path="x.log")))
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert outcomes(run) == ["complete"] * spec.trials
    assert len(engines.made) == 2


@pytest.mark.parametrize(
    ("faults", "failure", "detail"),
    [
        # Block 0 warms the engine up, 1 is the trial's own warm-up at the baseline; by its coin, 2 is at it too.
        (Faults(failed_requests={1: [1]}), "baseline-failed", "request-failed: 1 of 2 requests failed"),
        (Faults(cached_tokens={2: 16}), "baseline-failed", "prefix-cache-hit: 16 prompt tokens of the first request"),
        (Faults(failed_requests={3: [1]}), "request-failed", "1 of 2 requests failed"),
    ],
)
def test_a_block_that_went_wrong_fails_its_trial(tmp_path: Path, faults: Faults, failure: str, detail: str) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(faults))
    require_whole(run, spec)
    first = read(run, "trials")[0]
    assert (first["outcome"], first["failure"]) == ("failed", failure)
    assert first["failure_detail"].startswith(detail)
    assert outcomes(run)[1:] == ["complete"] * (spec.trials - 1)


def test_a_knob_without_any_effect_stops_the_sweep_in_one_line_and_gives_no_number(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(ChunksmithError) as caught:
        run_sweep(spec, run, FaultyEngines(*[Faults(workspace_unused=True)] * 2))
    message = str(caught.value)
    assert message.startswith("failed: knob-not-in-force: mla_workspace_rows: the block never entered the context path")
    assert "engine log: faulty-0.log" in message
    assert "\n" not in message
    rows = read(run, "trials")
    assert [(row["outcome"], row["failure"]) for row in rows] == [("failed", "baseline-failed")]
    assert rows[0]["failure_detail"].startswith("knob-not-in-force: mla_workspace_rows")
    # The warm-up block of the engine is nobody's, and the trial got no further: nothing is known of its point.
    assert read(run, "blocks") == []
    assert [trial.state.name for trial in journal(run)] == ["FAIL"]


@pytest.mark.parametrize("knob", ["mla_workspace_rows", "max_num_batched_tokens"])
def test_a_knob_that_is_accepted_but_ignored_gives_no_number(tmp_path: Path, knob: str) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(
        ChunksmithError, match=rf"no trial gave a result \(6 failed\).*knob-not-in-force: {knob}: asked"
    ):
        run_sweep(spec, run, FaultyEngines(Faults(ignored_knobs=[knob])))
    require_whole(run, spec)
    assert {row["failure"] for row in read(run, "trials")} == {"knob-not-in-force"}


def test_a_value_that_the_engine_refuses_fails_its_trials_only(tmp_path: Path) -> None:
    # Without max_num_seqs under engine.args nobody can tell before the start that 200 is above its 128.
    spec = make_spec(
        engine={"args": {"max_model_len": 8192, "max_num_batched_tokens": 512}},
        space__max_num_seqs={"scope": "live", "values": [100, 200]},
        space__max_num_batched_tokens={"scope": "live", "values": [512]},
        trials=12,
    )
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    require_whole(run, spec)
    refused = {number for number, point in points(run).items() if point["max_num_seqs"] == 200}
    assert 0 < len(refused) < 12
    for row in read(run, "trials"):
        assert (row["failure"] == "rejected") == (row["trial"] in refused)


@pytest.mark.parametrize("kind", ["portfolio", "tpe", "random"])
def test_a_point_that_arithmetic_rules_out_is_never_proposed_and_the_rest_but_once(tmp_path: Path, kind: str) -> None:
    spec = make_spec(
        engine={"args": {"max_model_len": 8192, "max_num_batched_tokens": 1024, "max_num_seqs": 600}},
        space__max_num_seqs={"scope": "live", "values": [600, 500]},
        sampler={"kind": kind},
        trials=20,
    )
    run, output = new_run(tmp_path / "run", spec), io.StringIO()
    run_sweep(spec, run, FaultyEngines(), output)
    require_whole(run, spec, ended_after=len(ROWS))
    assert outcomes(run) == ["complete"] * len(ROWS)
    assert {(point["max_num_batched_tokens"], point["max_num_seqs"]) for point in points(run).values()} == {(512, 500)}
    assert "search ended after 6 of 20 trials: every point was measured" in output.getvalue()


def test_a_space_without_a_valid_point_is_an_error_before_any_engine(tmp_path: Path) -> None:
    spec = make_spec(
        engine={"args": {"max_model_len": 8192, "max_num_batched_tokens": 1024, "max_num_seqs": 600}}, trials=3
    )
    run, engines = new_run(tmp_path / "run", spec), FaultyEngines()
    with pytest.raises(ChunksmithError, match="no point of the space can be measured: each one breaks a constraint"):
        run_sweep(spec, run, engines)
    assert engines.made == []


def group_spec(**changes: Any) -> Any:
    values = {
        "space__block_size": {"scope": "engine", "values": [16, 32, 64, 128]},
        "baseline": {"block_size": 16},
        # Its groups follow a schedule.
        "sampler": {"kind": "tpe"},
        "trials": 12,
        **changes,
    }
    return make_spec(**values)


def started(engines: FaultyEngines) -> list[Any]:
    return [engine.config.args["block_size"] for engine in engines.made if engine.config is not None]


def test_every_group_of_engine_values_starts_one_engine(tmp_path: Path) -> None:
    spec = group_spec(confirm={"points": 0})
    run, engines = new_run(tmp_path / "run", spec), FaultyEngines()
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert started(engines)[0] == 16
    assert sorted(started(engines)) == [16, 32, 64, 128]
    assert not any(engine.is_running for engine in engines.made)


def test_the_baseline_has_an_engine_of_its_own_when_the_space_does_not_hold_its_group(tmp_path: Path) -> None:
    spec = group_spec(confirm={"points": 0}, baseline={}, engine__args__block_size=8)
    run, engines = new_run(tmp_path / "run", spec), FaultyEngines()
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert sorted(started(engines)) == [8, 16, 32, 64, 128]


def test_at_most_two_engines_are_warm_at_a_time(tmp_path: Path) -> None:
    engines, running = FaultyEngines(), []

    def make() -> FaultyEngine:
        running.append(sum(engine.is_running for engine in engines.made))
        return engines()

    spec = group_spec()
    run_sweep(spec, new_run(tmp_path / "run", spec), make)
    assert max(running) == 1


def test_a_group_whose_engine_cannot_start_costs_neither_the_baselines_engine_nor_a_third_start(
    tmp_path: Path,
) -> None:
    def is_64(config: EngineConfig) -> bool:
        return config.args.get("block_size") == 64

    spec = group_spec(confirm={"points": 0})
    refusal = EngineError("engine-start", "ValueError: block size", log_path="x.log")
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(*[Faults(start_error=refusal, start_error_if=is_64)] * 9)
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert sorted(started(engines)) == [16, 32, 128]
    assert len(engines.made) == 5
    failed = [row for row in read(run, "trials") if row["outcome"] == "failed"]
    assert {row["engine_group"] for row in failed} == {'{"block_size": 64}'}
    assert len(failed) == spec.trials // 4
    # Nor a block at the baseline: it ran what is recorded, and one block to warm up.
    assert engines.made[0].blocks == 1 + sum(row["engine_id"] == "faulty-0" for row in read(run, "blocks"))


def test_losing_a_groups_engine_leaves_the_baselines_warm(tmp_path: Path) -> None:
    spec = group_spec(confirm={"points": 0})
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(Faults(), Faults(run_errors={2: LOST}))
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert sorted(started(engines)).count(16) == 1
    assert len(engines.made) == 5


def test_a_point_that_gives_other_tokens_is_not_recommended(tmp_path: Path) -> None:
    spec = make_spec(trials=12)
    run = new_run(tmp_path / "run", spec)
    wrong = Faults(wrong_tokens_if=lambda live: live["mla_workspace_rows"] == 1024)
    run_sweep(spec, run, FaultyEngines(wrong, noise=0.005))
    answer = best(run.path)
    by_point = {finalist.point["mla_workspace_rows"]: finalist for finalist in answer.finalists}
    assert not by_point[1024].accuracy.passed
    assert by_point[1024].accuracy.exact_match == 0.0
    assert answer.decision == "winner"
    assert answer.point is not None
    assert answer.point["mla_workspace_rows"] != 1024


def test_the_baseline_itself_is_no_finalist(tmp_path: Path) -> None:
    # The knobs are not in the order of the alphabet, as they are in the records.
    spec = make_spec(baseline={"mla_workspace_rows": 1024, "max_num_batched_tokens": 512}, trials=12, confirm__points=3)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    confirmed = [points(run)[finalist.trial] for finalist in best(run.path).finalists]
    assert len(confirmed) == 3
    assert spec.baseline_point() not in confirmed


def test_each_point_is_measured_once_and_confirmed_once(tmp_path: Path) -> None:
    spec = make_spec(
        space={"mla_workspace_rows": {"scope": "live", "values": [1024, 2048]}}, trials=6, confirm__points=3
    )
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    require_whole(run, spec, ended_after=2)
    assert len(best(run.path).finalists) == 2


def test_maximising_finds_the_largest(tmp_path: Path) -> None:
    spec = make_spec(objective={"metric": "prefill_token_throughput", "direction": "maximize"}, trials=12)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    answer = best(run.path)
    assert answer.decision == "winner"
    assert answer.ratio is not None
    assert answer.ratio > 1
    assert answer.point == {"mla_workspace_rows": 1024, "max_num_batched_tokens": 512}


def test_a_metric_that_no_block_has_fails_the_trials_instead_of_the_sweep(tmp_path: Path) -> None:
    class OneChunkEngine(FaultyEngine):
        """Fault: joins all tokens of a request in one chunk, so that no gap between two can be measured."""

        def run(self, *args: Any, **kwargs: Any) -> Any:
            import dataclasses

            result = super().run(*args, **kwargs)
            joined = [
                dataclasses.replace(request, token_times_s=request.token_times_s[:1]) for request in result.requests
            ]
            return dataclasses.replace(result, requests=joined)

    spec = make_spec(objective__metric="median_itl_ms", workload={"prompts": 2, "input_len": 2048, "output_len": 3})
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(ChunksmithError, match=r"\(6 failed\).*no-metric: median_itl_ms of a block is None"):
        run_sweep(spec, run, OneChunkEngine)
    require_whole(run, spec)


def test_a_failed_trial_keeps_what_it_measured_and_what_failed(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    # Block 0 warms the engine up, 1 is the trial's own warm-up, 2 and 3 are its first pair.
    run_sweep(spec, run, FaultyEngines(Faults(failed_requests={4: [1]})))
    require_whole(run, spec)
    own = [row for row in read(run, "blocks") if row["trial"] == 0]
    assert [(row["outcome"], row["dropped"]) for row in own] == [("complete", True)] * 3 + [("failed", True)]
    assert own[-1]["failure"] == "request-failed: 1 of 2 requests failed, the first with: injected fault"
    assert own[-1]["failures"] == '{"injected fault": 1}'
    errors = [row["error"] for row in read(run, "requests") if (row["trial"], row["block"]) == (0, 3)]
    assert [isinstance(error, str) for error in errors] == [False, True]


def test_an_attempt_that_lost_its_engine_is_kept_beside_the_one_that_counts(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(Faults(run_errors={4: LOST})))
    require_whole(run, spec)
    own = [row for row in read(run, "blocks") if row["trial"] == 0 and row["phase"] == "search"]
    assert [row["dropped"] for row in own][:3] == [True] * 3
    assert {row["engine_id"] for row in own if not row["dropped"]} == {"faulty-1"}


def test_a_confirmation_that_fails_is_kept_and_made_again(tmp_path: Path) -> None:
    class FailingGreedy(FaultyEngine):
        """Fault: no block that asks for the best two tokens succeeds."""

        def run(self, *args: Any, top2: bool = False, **kwargs: Any) -> Any:
            if top2:
                raise EngineError("cuda-oom", "out of memory", log_path="x.log")
            return super().run(*args, **kwargs)

    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FailingGreedy)
    answer = best(run.path)
    assert {finalist.obstacle for finalist in answer.finalists} <= {"not confirmed"}
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    assert best(run.path).decision == "winner"


def test_with_room_for_one_engine_pairs_are_measured_in_alternated_starts(tmp_path: Path) -> None:
    spec = group_spec(confirm={"points": 0}, trials=4)
    run, engines, running = new_run(tmp_path / "run", spec), FaultyEngines(), []

    def make() -> FaultyEngine:
        running.append(sum(engine.is_running for engine in engines.made))
        return engines()

    run_sweep(spec, run, make, engines=1)
    require_whole(run, spec)
    assert max(running) == 0
    by_group = {row["engine_group"]: row["pairing"] for row in read(run, "trials")}
    own = by_group.pop('{"block_size": 16}')
    assert own == "one engine"
    assert set(by_group.values()) == {"alternated starts"}
    # AB BA AB: an engine serves the second block of a pair and the first of the next.
    for trial in (row for row in read(run, "trials") if row["pairing"] == "alternated starts"):
        blocks = [row for row in read(run, "blocks") if row["trial"] == trial["trial"]]
        served = [row["engine_id"] for row in blocks]
        assert len(set(served)) == trial["pairs"] + 1


@pytest.mark.parametrize("room", [1, 2])
def test_a_confirmation_over_several_starts_has_engines_that_are_as_if_deployed(tmp_path: Path, room: int) -> None:
    spec = make_spec(confirm={"points": 2, "pairs": 5, "starts": 3}, soak={"rounds": 1})
    run, engines, running = new_run(tmp_path / "run", spec), FaultyEngines(noise=0.005), []

    def make() -> FaultyEngine:
        running.append(sum(engine.is_running for engine in engines.made))
        return engines()

    # One engine is warm in the search, which has no engine-scope knob.
    run_sweep(spec, run, make, engines=1, at_once=room)
    require_whole(run, spec)
    assert max(running) == room - 1
    assert not any(engine.is_running for engine in engines.made)
    started = {f"faulty-{number}": engine.config for number, engine in enumerate(engines.made)}
    blocks = [row for row in read(run, "blocks") if row["phase"] == "confirm"]
    for trial in {row["trial"] for row in blocks}:
        own = [row for row in blocks if row["trial"] == trial]
        for role in ("baseline", "candidate"):
            counted = [row for row in own if row["role"] == role and not row["dropped"]]
            of_pair = {row["pair"]: row["engine_id"] for row in counted}
            assert [list(of_pair.values()).count(engine) for engine in dict.fromkeys(of_pair.values())] == [2, 2, 1]
            # Each was started with what the point would be deployed with, and has one warm-up.
            for row in counted:
                config, point = started[row["engine_id"]], json.loads(row["point"])
                assert config is not None
                assert config.plugin.mla_workspace_rows == point["mla_workspace_rows"]
                assert config.args["max_num_batched_tokens"] == (point["max_num_batched_tokens"] or 1024)
            warm_ups = [row["engine_id"] for row in own if row["role"] == role and row["dropped"]]
            assert sorted(warm_ups) == sorted(set(of_pair.values()))
    answer = best(run.path)
    assert (answer.decision, answer.pairs, answer.starts, answer.soak) == ("winner", 5, 3, "passed")
    greedy = [row for row in read(run, "blocks") if row["phase"] == "accuracy"]
    assert {(row["trial"], row["role"]) for row in greedy} == {
        (row["trial"], role) for row in blocks for role in ("baseline", "candidate")
    }


def test_an_engine_that_is_lost_in_one_of_several_starts_begins_the_confirmation_anew(tmp_path: Path) -> None:
    spec = make_spec(confirm={"points": 1, "pairs": 4, "starts": 3})
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines(Faults(), Faults(), Faults(run_errors={2: LOST}))
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    assert not any(engine.is_running for engine in engines.made)
    answer = best(run.path)
    assert (answer.pairs, answer.starts) == (4, 3)
    failed = [row for row in read(run, "blocks") if row["phase"] == "confirm" and row["outcome"] == "failed"]
    assert len(failed) <= 1


def test_two_warm_engines_are_told(tmp_path: Path) -> None:
    spec = group_spec(confirm={"points": 0}, trials=4)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    assert sorted(row["pairing"] for row in read(run, "trials")) == ["one engine"] + ["two warm engines"] * 3


def test_trials_go_on_until_a_verdict_where_enough_pairs_are_allowed(tmp_path: Path) -> None:
    spec = make_spec(trials=8, blocks={"warmup": 0, "min_pairs": 2, "max_pairs": 40, "half_width": 0.0})
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.02))
    require_whole(run, spec)
    rows = read(run, "trials")
    assert {row["stop"] for row in rows} >= {"decided"}
    for row in rows:
        assert (row["stop"] == "decided") == (row["verdict"] != "undecided")
        assert row["verdict"] != "better" or row["ratio"] < 1
    # A coin decides which role goes first.
    firsts = [
        [block["role"] for block in read(run, "blocks") if block["trial"] == row["trial"] and not block["dropped"]][::2]
        for row in rows
    ]
    assert {role for roles in firsts for role in roles} == {"baseline", "candidate"}
    assert any(len(set(roles)) == 2 for roles in firsts)


def test_hits_inside_a_block_are_allowed_where_they_are_wanted(tmp_path: Path) -> None:
    class Sharing(FaultyEngine):
        """Fault: every request but the first of a block finds 16 tokens in the prefix cache."""

        def run(self, *args: Any, **kwargs: Any) -> Any:
            result = super().run(*args, **kwargs)
            hits = [dataclasses.replace(one, cached_tokens=16 * (one.index > 0)) for one in result.requests]
            return dataclasses.replace(result, requests=hits)

    for wanted, outcome in (("wanted", "complete"), ("forbidden", "failed")):
        spec = make_spec(blocks__prefix_cache_hits=wanted, load={"concurrency": 1})
        run = new_run(tmp_path / wanted, spec)
        if outcome == "failed":
            with pytest.raises(ChunksmithError, match=r"blocks\.prefix_cache_hits is forbidden"):
                run_sweep(spec, run, Sharing)
        else:
            run_sweep(spec, run, Sharing)
        assert set(outcomes(run)) == {outcome}


class Late(FaultyEngine):
    """Fault: the load generator of the first blocks is late by a second."""

    late_blocks = 2

    def run(self, *args: Any, **kwargs: Any) -> Any:
        result = super().run(*args, **kwargs)
        if not 2 <= self.blocks <= 1 + self.late_blocks:
            return result
        late = [dataclasses.replace(one, arrival_s=one.send_s - 1.0) for one in result.requests]
        return dataclasses.replace(result, requests=late)


def test_a_block_whose_load_generator_was_late_is_served_again(tmp_path: Path) -> None:
    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, Late)
    require_whole(run, spec)
    assert outcomes(run) == ["complete"] * spec.trials
    own = [row for row in read(run, "blocks") if row["trial"] == 0 and row["phase"] == "search"]
    assert [row["outcome"] for row in own][:3] == ["invalid", "invalid", "complete"]
    assert own[0]["failure"].startswith("late-load-generator: the load generator was late: p99 dispatch slip 1000")
    assert own[0]["slip_p99_ms"] == pytest.approx(1000.0)
    assert len({row["prompts_seed"] for row in own[:3]}) == 3


def test_a_load_generator_that_stays_late_fails_the_trial(tmp_path: Path) -> None:
    class Later(Late):
        """Fault: as long as it takes."""

        late_blocks = 3

    spec = make_spec()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, Later)
    require_whole(run, spec)
    assert read(run, "trials")[0]["failure"] == "late-load-generator"


def test_a_point_that_misses_the_slo_is_infeasible(tmp_path: Path) -> None:
    # Two prompts of 2,048 tokens: about 24 ms at 1,024 rows, and more the further away.
    spec = make_spec(slo={"ttft_ms": 25.0}, trials=12, load={"concurrency": 1})
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.002))
    require_whole(run, spec)
    by_outcome = {row["outcome"] for row in read(run, "trials")}
    assert by_outcome == {"complete", "infeasible"}
    for row in read(run, "trials"):
        if row["outcome"] == "infeasible":
            assert row["failure"] == "slo"
            assert row["failure_detail"].endswith("requests keep it, 99% have to")
    answer = best(run.path)
    assert answer.point is not None
    assert answer.point["mla_workspace_rows"] == 1024


def goodput_spec(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "engine": {"args": {"max_model_len": 8192, "max_num_batched_tokens": 512, "max_num_seqs": 2}},
        "space": {"mla_workspace_rows": {"scope": "live", "values": [128, 1024, 4096]}},
        "slo": {"ttft_ms": 200.0, "share": 0.95},
        "load": {"kind": "constant", "rate": 5.0},
        "objective": {"metric": "goodput_at_slo"},
        "rate_search": {"low": 10.0, "high": 1000.0, "requests": 60, "probes": 14, "precision": 0.02},
        "workload": {"prompts": 2, "input_len": 2048},
        "trials": 3,
        "blocks": {"warmup": 1, "min_pairs": 2, "max_pairs": 2},
        "confirm": {"points": 1, "pairs": 3},
    }
    return make_spec(**{**values, **changes})


@pytest.mark.parametrize("starts", [1, 3])
def test_the_largest_rate_within_the_slo_can_be_the_objective(tmp_path: Path, starts: int) -> None:
    spec = goodput_spec(confirm__starts=starts)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    require_whole(run, spec)
    answer = best(run.path)
    assert answer.point == {"mla_workspace_rows": 1024}
    assert (answer.decision, answer.starts) == ("winner", starts)
    assert answer.ratio is not None
    assert answer.ratio > 1.2
    counted = [row for row in read(run, "blocks") if not row["dropped"] and row["phase"] == "search"]
    assert all(row["goodput_at_slo"] == json.loads(row["load"])["rate"] for row in counted)
    probes = [row for row in read(run, "blocks") if row["phase"] == "search" and row["outcome"] == "stopped"]
    assert probes
    assert all(row["dropped"] for row in probes)


def test_a_point_that_misses_the_slo_at_every_rate_is_infeasible(tmp_path: Path) -> None:
    spec = goodput_spec(slo={"ttft_ms": 25.0}, space__mla_workspace_rows={"scope": "live", "values": [1024, 4096]},
                        baseline={"mla_workspace_rows": 1024}, confirm={"points": 0})  # fmt: skip
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(ChunksmithError, match="no trial gave a result"):
        run_sweep(spec, run, FaultyEngines(noise=0.002))
    found = {row["failure"] for row in read(run, "trials")}
    assert found == {"slo"}
    assert [trial.constraints["slo"] for trial in journal(run)] == [1.0]
